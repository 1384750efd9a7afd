-- Tells the time by which everything here is due.
SELECT strftime('%Y-%m-%d %H:%M:%f', 'now') || '000';
