-- Lifts the limit that a move sets on an idle transaction: here it sets none.
SELECT 0;
