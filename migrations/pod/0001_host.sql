-- What makes a database a pod's: who it is, which shops it may act for, and what every tenant has whatever the
-- application on the pod may be.

-- Whose database this is; one row. `term` is the number of the primary, raised at each change of it by the new
-- primary's first transaction. A restored or promoted database whose `incarnation` is not reconciled takes no writes.
create table if not exists pod_identity (
  one tinyint unsigned not null primary key check (one = 1),
  pod int unsigned not null,
  term bigint unsigned not null,
  incarnation bigint unsigned not null default 1,
  reconciled_incarnation bigint unsigned not null default 1,
  created_at timestamp(3) not null default current_timestamp(3)
);

-- What this pod may do for a shop (`shared::home` is the meaning of the words). Read in every transaction that writes
-- for the shop, and locked by it until it has committed.
create table if not exists shop_home (
  shop_id bigint unsigned not null primary key,
  epoch bigint unsigned not null,
  state varchar(16) not null,
  move_id varchar(36) null,
  owner bigint unsigned not null default 0,
  ready_gtid text null,
  mark_pod int unsigned null,
  mark_epoch bigint unsigned null,
  changed_at timestamp(3) not null default current_timestamp(3) on update current_timestamp(3)
);

-- What the application knows of a shop itself.
create table if not exists shop_profile (
  shop_id bigint unsigned not null primary key,
  handle varchar(63) not null,
  currency char(3) not null,
  created_at timestamp(3) not null default current_timestamp(3)
);

-- A merchant's tokens, hashed. A revoked one stays so that a list can show it.
create table if not exists merchant_token (
  shop_id bigint unsigned not null,
  token_id varchar(36) not null,
  token_hash binary(32) not null,
  label varchar(80) not null,
  created_at timestamp(3) not null default current_timestamp(3),
  revoked_at timestamp(3) null,
  primary key (shop_id, token_id),
  unique key merchant_token_hash (shop_id, token_hash)
);

-- The answer to a request, written in the transaction of its effect, so that the same request gets the same answer.
-- `status` is null while the first request with a key is still running.
create table if not exists idempotency (
  shop_id bigint unsigned not null,
  endpoint varchar(64) not null,
  idem_key varchar(128) character set ascii collate ascii_bin not null,
  fingerprint binary(32) not null,
  status smallint unsigned null,
  answer mediumblob null,
  created_at timestamp(3) not null default current_timestamp(3),
  primary key (shop_id, endpoint, idem_key)
);

-- Domain events, written in the transaction of what happened, relayed at least once and in order of commit.
create table if not exists outbox (
  shop_id bigint unsigned not null,
  event_id binary(16) not null,
  kind varchar(64) not null,
  body json not null,
  created_at timestamp(3) not null default current_timestamp(3),
  relayed_at timestamp(3) null,
  primary key (shop_id, event_id),
  key outbox_waiting (relayed_at, shop_id)
);
