-- Lets the server end this transaction where its relay falls silent in it for :milliseconds (stopped, or cut off with
-- its host): the keys that it has taken are then free for the relay that takes over.
SELECT set_config('idle_in_transaction_session_timeout', CAST(CAST(:milliseconds AS integer) AS text), true);
