-- Money asked for, and the built-in gateway that pretends to move it.

-- One try to be paid for an order. `provider_key` is made from shop and order and written before the provider is
-- called, outside of any transaction; whoever comes back to the payment later (a repeated request, the sweeper, another
-- pod after a move) asks the provider by that key first, so that nobody is charged twice.
-- `status`: pending -> approved | declined; approved -> refunding -> refunded, where `refunding` is the decision and
-- `refunded` the provider's word. `due_at` is set while something is still to be done with the provider, and is the
-- instant from which the sweeper does it; it is null otherwise, so that the sweeper looks at open payments only.
-- `request_key` is the idempotency key of the checkout, by which the sweeper gives a lost request its answer.
create table if not exists payment (
  shop_id bigint unsigned not null,
  payment_id binary(16) not null,
  order_id binary(16) not null,
  method varchar(32) character set ascii collate ascii_bin not null,
  instruction varchar(255) character set utf8mb4 collate utf8mb4_0900_bin not null,
  provider_key varchar(80) character set ascii collate ascii_bin not null,
  request_key varchar(128) character set ascii collate ascii_bin not null,
  amount decimal(19,4) not null,
  currency char(3) character set ascii collate ascii_bin not null,
  status varchar(16) character set ascii collate ascii_bin not null,
  due_at datetime(3) null,
  created_at datetime(3) not null default (utc_timestamp(3)),
  updated_at datetime(3) not null default (utc_timestamp(3)),
  primary key (shop_id, payment_id),
  unique key payment_provider_key (shop_id, provider_key),
  key payment_order (shop_id, order_id),
  key payment_due (due_at, shop_id),
  constraint payment_status check (
    status in ('pending', 'approved', 'declined', 'refunding', 'refunded')),
  constraint payment_amount_not_negative check (amount >= 0)
);

-- The books of the bogus gateway, the payment provider that is built in. It stands for a system outside: the
-- application reaches it only through the `PaymentProvider` trait and never in a transaction with an order. Its books
-- are rows of the shop so that they survive a crash and move with it. `charges` counts how often a charge was asked
-- for under one key; the money moves once, whatever it says. `answers_at`: before this instant the gateway says that it
-- is still thinking (the outcome `timeout`).
create table if not exists bogus_charge (
  shop_id bigint unsigned not null,
  charge_key varchar(80) character set ascii collate ascii_bin not null,
  amount decimal(19,4) not null,
  currency char(3) character set ascii collate ascii_bin not null,
  verdict varchar(16) character set ascii collate ascii_bin not null,
  charges int not null default 0,
  answers_at datetime(3) not null,
  refunded_at datetime(3) null,
  created_at datetime(3) not null default (utc_timestamp(3)),
  primary key (shop_id, charge_key),
  constraint bogus_charge_verdict check (verdict in ('approved', 'declined', 'cancelled'))
);
