-- Lifts the limit that `pending` sets on an idle transaction, for a caller whose transaction outlives the move.
SELECT set_config('idle_in_transaction_session_timeout', '0', true);
