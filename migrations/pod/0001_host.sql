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

-- Which process of the pod does what only one may do at a time (the relay, the jobs): the owner until an instant of the
-- server's clock. A lease spares work; what may be written is decided by the home in each transaction, not by it.
create table if not exists pod_lease (
  name varchar(64) character set ascii collate ascii_bin not null primary key,
  owner varchar(64) character set ascii collate ascii_bin not null,
  expires_at timestamp(3) not null
);

-- What this pod may do for a shop (`shared::home` is the meaning of the words). Read in every transaction that writes
-- for the shop, and locked by it until it has committed.
create table if not exists shop_home (
  shop_id bigint unsigned not null primary key,
  epoch bigint unsigned not null,
  state varchar(16) character set ascii collate ascii_bin not null,
  move_id varchar(36) character set ascii collate ascii_bin null,
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
-- `status` is null after the first step of a call that has two (a checkout, between its order and its payment): `note`
-- is what that step leaves to the last one, and `holder` the request that is at it until `held_until`; anyone may take it
-- up after that.
create table if not exists idempotency (
  shop_id bigint unsigned not null,
  endpoint varchar(64) character set ascii collate ascii_bin not null,
  idem_key varchar(128) character set ascii collate ascii_bin not null,
  fingerprint binary(32) not null,
  status smallint unsigned null,
  media varchar(128) character set ascii collate ascii_bin null,
  location varchar(2048) null,
  answer mediumblob null,
  note blob null,
  holder binary(16) null,
  held_until timestamp(3) null,
  created_at timestamp(3) not null default current_timestamp(3),
  primary key (shop_id, endpoint, idem_key),
  key idempotency_age (shop_id, created_at)
);

-- Domain events, written as the last statement of the transaction of what happened. They are relayed at least once, in
-- the order in which they became visible, which `waiting` tells and `position` alone does not: a transaction that took
-- its position early may commit late. `waiting` is null once relayed, so that the index holds what waits and no more.
create table if not exists outbox (
  shop_id bigint unsigned not null,
  position bigint unsigned not null auto_increment,
  event_id binary(16) not null,
  epoch bigint unsigned not null,
  kind varchar(64) character set ascii collate ascii_bin not null,
  subject varchar(128) not null,
  payload mediumtext not null,
  waiting tinyint unsigned null default 1,
  created_at timestamp(3) not null default current_timestamp(3),
  relayed_at timestamp(3) null,
  primary key (shop_id, position),
  unique key outbox_event (shop_id, event_id),
  key outbox_position (position),
  key outbox_waiting (waiting, shop_id, position),
  key outbox_age (shop_id, relayed_at)
);
