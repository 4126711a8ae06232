-- Moves of shops: who drives each, and what keeps them apart.

-- Who may drive a move: `owner` of the move's row is raised with each change of holder. A lease that has run out may be
-- taken by any control server; the former holder is refused at both pods by the owner number, not by this clock.
create table if not exists move_lease (
  move text not null primary key references move (id),
  holder text not null,
  expires_ms bigint not null
);

-- One open move per shop.
create unique index if not exists move_open on move (shop) where state not in ('done', 'aborted');

create index if not exists move_by_state on move (state, created_ms);

-- What happened to a move, for operators and for clients that follow it; append only, pruned with the move.
create table if not exists move_event (
  sequence bigint not null primary key,
  move text not null references move (id),
  state text not null,
  owner bigint not null,
  actor text not null,
  note text null,
  at_ms bigint not null
);
create index if not exists move_event_by_move on move_event (move, sequence);

-- Shops that an operator has pinned to where they are, or to one pod: no move takes them elsewhere.
create table if not exists shop_pin (
  shop bigint not null primary key references shop (id),
  pod bigint not null references pod (id),
  reason text null,
  actor text not null,
  created_ms bigint not null
);

-- Rows of a shop to be taken away at a pod: what an aborted move left at its target. Resumed until it is done; a new move
-- of the shop to that pod waits for it.
create table if not exists move_leftover (
  move text not null primary key references move (id),
  shop bigint not null references shop (id),
  pod bigint not null references pod (id),
  owner bigint not null,
  created_ms bigint not null
);
create index if not exists move_leftover_by_pod on move_leftover (pod, shop);
