-- Who bought what.

-- A buyer, known by e-mail address within one shop: the same address at two shops is two customers. The address is
-- lowered by the application and compared byte for byte.
create table if not exists customer (
  shop_id bigint unsigned not null,
  customer_id binary(16) not null,
  email varchar(254) character set utf8mb4 collate utf8mb4_0900_bin not null,
  created_at datetime(3) not null default (utc_timestamp(3)),
  primary key (shop_id, customer_id),
  unique key customer_email (shop_id, email)
);

-- An order (`order` is a word of SQL). It begins as `pending` with its units taken from `inventory`, and is settled by
-- the answer of the payment provider: `paid`, or `payment_failed` with the units back. The merchant makes a paid one
-- `fulfilled`, `cancelled` or `refunded`. The legal steps are one function of the application (`shop/state.rs`).
-- `access_key` is what the order's access token says: it opens this row alone, for reading, so hashing it would hide
-- nothing that does not lie beside it; a repeated checkout must be able to give it out again.
-- `line_count` lets a move check that an order arrived with all of its items.
create table if not exists shop_order (
  shop_id bigint unsigned not null,
  order_id binary(16) not null,
  customer_id binary(16) not null,
  status varchar(16) character set ascii collate ascii_bin not null,
  total decimal(19,4) not null,
  currency char(3) character set ascii collate ascii_bin not null,
  line_count smallint unsigned not null,
  access_key binary(32) not null,
  created_at datetime(3) not null default (utc_timestamp(3)),
  updated_at datetime(3) not null default (utc_timestamp(3)),
  primary key (shop_id, order_id),
  key shop_order_customer (shop_id, customer_id, order_id),
  constraint shop_order_status check (
    status in ('pending', 'paid', 'payment_failed', 'fulfilled', 'cancelled', 'refunded')),
  constraint shop_order_total_not_negative check (total >= 0)
);

-- A line of an order, with title and price as they were at that moment. `line` counts from 0 in the order the buyer
-- gave them.
create table if not exists order_item (
  shop_id bigint unsigned not null,
  order_id binary(16) not null,
  line smallint unsigned not null,
  product_id binary(16) not null,
  title varchar(200) not null,
  price decimal(19,4) not null,
  quantity int not null,
  primary key (shop_id, order_id, line),
  constraint order_item_quantity_positive check (quantity > 0)
);

-- What was sent to the buyer. One for each order today; a table of its own so that a second parcel is a row.
create table if not exists shipment (
  shop_id bigint unsigned not null,
  shipment_id binary(16) not null,
  order_id binary(16) not null,
  created_at datetime(3) not null default (utc_timestamp(3)),
  primary key (shop_id, shipment_id),
  key shipment_order (shop_id, order_id)
);
