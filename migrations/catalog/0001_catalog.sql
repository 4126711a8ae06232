-- The catalog: which pod owns which shop, under which epoch, and how that came to be.
--
-- Portable between SQLite and PostgreSQL: numbers are bigint, instants are milliseconds since 1970 (UTC), names compare
-- byte by byte. No table holds a password: endpoints refer to secrets, tokens are stored as SHA-256.

-- One row: the counters of this catalog. `version` is the last number given to a change that an edge or a pod may see; it
-- is taken with an update of this row, whose lock is held to commit, so that no reader of changes skips one. `incarnation`
-- names the history that the versions belong to; while it is not `reconciled`, no shop is made and none moves. Changes up
-- to `pruned` may be incomplete, since their tombstones are gone.
create table if not exists catalog_meta (
  one bigint not null primary key check (one = 1),
  incarnation bigint not null,
  reconciled bigint not null,
  version bigint not null,
  pruned bigint not null,
  shop_last bigint not null,
  event_last bigint not null,
  created_ms bigint not null
);

-- A pod: a full stack that owns shops. `term` is the number of its primary. `version` is its last change that edges see,
-- `topology_version` its last change that its own processes see. Readers of changes are told of a pod at its
-- `first_version` too, so that it comes before every shop that it owns.
create table if not exists pod (
  id bigint not null primary key,
  name text not null unique,
  region text not null,
  pool text not null,
  class text not null,
  max_shops bigint not null check (max_shops >= 0),
  status text not null check (status in ('active', 'draining', 'offline')),
  term bigint not null check (term >= 1),
  first_version bigint not null,
  version bigint not null,
  topology_version bigint not null,
  created_ms bigint not null,
  changed_ms bigint not null
);
create index if not exists pod_by_version on pod (version);

-- The servers and processes of a pod. `secret` says where the password is, never what it is. `position` keeps the order
-- in which they were named.
create table if not exists pod_endpoint (
  pod bigint not null references pod (id),
  kind text not null check (kind in ('http', 'mysql', 'redis')),
  address text not null,
  role text not null check (role in ('primary', 'replica', 'process', 'cache')),
  socket text null,
  secret text null,
  position bigint not null,
  primary key (pod, kind, address)
);
-- Two primaries of one pod cannot be written down.
create unique index if not exists pod_endpoint_primary on pod_endpoint (pod) where role = 'primary';

-- A shop: the tenant. Ids are never used twice, also those of shops whose creation was undone. The row of a removed shop
-- stays, so that its history has something to refer to.
create table if not exists shop (
  id bigint not null primary key,
  handle text not null,
  plan text not null,
  currency text not null,
  region text null,
  status text not null check (status in ('creating', 'active', 'removed')),
  created_ms bigint not null
);
create unique index if not exists shop_handle on shop (handle) where status <> 'removed';

-- The registered domains of a shop; `<handle>.<base_domain>` is implied and not listed.
create table if not exists shop_host (
  host text not null primary key,
  shop bigint not null references shop (id),
  created_ms bigint not null
);
create index if not exists shop_host_by_shop on shop_host (shop);

-- Which pod owns a shop: the record that decides. `version` is the last change of anything that an edge may see of the
-- shop (its names too).
create table if not exists placement (
  shop bigint not null primary key references shop (id),
  pod bigint not null references pod (id),
  epoch bigint not null check (epoch >= 1),
  state text not null check (state in ('serving', 'frozen', 'offline')),
  version bigint not null,
  changed_ms bigint not null
);
create index if not exists placement_by_version on placement (version);
create index if not exists placement_by_pod on placement (pod);

-- Every change of a placement, in the transaction that made it; append only (triggers see to it in SQLite, rights where
-- there are accounts). A removal has no new pod.
create table if not exists placement_event (
  sequence bigint not null primary key,
  shop bigint not null references shop (id),
  old_pod bigint null,
  new_pod bigint null,
  old_epoch bigint null,
  new_epoch bigint null,
  state text not null,
  actor text not null,
  reason text null,
  version bigint not null,
  at_ms bigint not null
);
create index if not exists placement_event_by_shop on placement_event (shop, at_ms, sequence);

create trigger if not exists placement_event_stays before delete on placement_event begin
  select raise(abort, 'placement_event is append only');
end;

create trigger if not exists placement_event_is_final before update on placement_event begin
  select raise(abort, 'placement_event is append only');
end;

-- Shops that edges must forget, for readers of changes; pruned after a time.
create table if not exists shop_tombstone (
  version bigint not null primary key,
  shop bigint not null,
  at_ms bigint not null
);

-- Where new shops of each of the 1024 buckets go (shop id modulo 1024, for ever). A placement overrides it.
create table if not exists bucket_placement (
  bucket bigint not null primary key check (bucket between 0 and 1023),
  live_pod bigint null references pod (id),
  planned_pod bigint null references pod (id)
);

-- The state machine of each move.
create table if not exists move (
  id text not null primary key,
  shop bigint not null references shop (id),
  source_pod bigint not null references pod (id),
  target_pod bigint not null references pod (id),
  source_epoch bigint not null,
  epoch bigint not null,
  state text not null,
  owner bigint not null,
  detail text not null,
  error text null,
  actor text not null,
  created_ms bigint not null,
  changed_ms bigint not null
);
create index if not exists move_by_shop on move (shop, created_ms);

-- Work of several steps that is finished or undone after a crash, and the audit of single-step changes that touch no
-- placement. `detail` is what it needs to go on (JSON, no secrets); `pod` reserves room there while it runs.
create table if not exists operation (
  id text not null primary key,
  kind text not null,
  subject text not null,
  state text not null check (state in ('running', 'done', 'failed')),
  step text null,
  detail text not null,
  error text null,
  actor text not null,
  shop bigint null references shop (id),
  pod bigint null references pod (id),
  created_ms bigint not null,
  changed_ms bigint not null
);
create index if not exists operation_by_state on operation (state, created_ms);

-- Things that can be had once in the fleet: hosts, handles, and the right to work on a shop. Whoever inserts the row has it.
create table if not exists claim (
  kind text not null check (kind in ('handle', 'host', 'shop')),
  name text not null,
  shop bigint null,
  operation text null,
  created_ms bigint not null,
  primary key (kind, name)
);
create index if not exists claim_by_shop on claim (shop);
create index if not exists claim_by_operation on claim (operation);

-- Who may ask the control server for what. `hash` is the SHA-256 of the token in hex; `pod` limits the role `pod` to one pod.
create table if not exists api_token (
  name text not null primary key,
  role text not null check (role in ('edge', 'pod', 'operator')),
  pod bigint null,
  hash text not null,
  created_ms bigint not null
);
