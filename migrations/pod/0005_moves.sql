-- What a move needs in the databases that it touches.

-- Tables that a move must not take for a shop's: `reference` is the same on all pods (tax rates, countries), `local`
-- is this pod's own. Every other table must be keyed by `shop_id` first and moves with its shop; a table that is neither
-- stops a move before it begins. An application registers its own in the migration that makes them.
create table if not exists table_kind (
  name varchar(64) not null primary key,
  kind varchar(16) character set ascii collate ascii_bin not null check (kind in ('reference', 'local'))
);

insert ignore into table_kind (name, kind) values
  ('pod_identity', 'local'), ('pod_lease', 'local'), ('schema_ledger', 'local'), ('shop_home', 'local'),
  ('table_kind', 'local'), ('move_mark', 'local');

-- A mover's mark: each of its transactions that changes a shop's rows writes the row of its part first. In the binlog the
-- mark tells the mover's changes from everybody else's; `at` is where that part stands (the last key copied, the set of
-- transactions applied), committed with the rows themselves, so that a mover that takes up the work knows exactly what is
-- there. `changes` makes each update a change, also where `at` stays the same: an update that changes nothing is not in
-- the binlog.
create table if not exists move_mark (
  move_id varchar(36) character set ascii collate ascii_bin not null,
  part varchar(120) character set utf8mb4 collate utf8mb4_0900_bin not null,
  changes bigint unsigned not null default 0,
  at mediumblob null,
  changed_at timestamp(3) not null default current_timestamp(3) on update current_timestamp(3),
  primary key (move_id, part)
);
