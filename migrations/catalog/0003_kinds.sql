-- What a row of `move` is: `move`, or `clear`: an order to clear rows that no move made. That one is kept as a move which was over
-- before it began, and nobody should take it for a shop's last one.
alter table move add column kind text not null default 'move' check (kind in ('move', 'clear'));

-- Before it had a column, the kind was in the detail's JSON, which is written without spaces. (Inside of a text the quotes
-- would have backslashes.)
update move set kind = 'clear' where state = 'aborted' and detail like '%"clears":true%';
