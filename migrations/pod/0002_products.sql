-- What a shop sells, and how much of it there is.
--
-- Rules of every table from here on: the primary key and each unique key begin with `shop_id`, so that a shop's rows
-- lie together, a move pages through them by key, and no statement can meet another tenant's row by accident. Ids are
-- UUIDv7 made by the application, kept as 16 bytes: byte order is order of creation, so "newest first" is the primary
-- key read backwards and needs no index of its own. Times are UTC (`datetime`, since `timestamp` ends in 2038).
-- No foreign keys: each would take a shared lock on the parent row in the middle of a checkout, and a move writes
-- the tables side by side. Money is a decimal with its currency beside it, never a float.

-- A thing for sale. `price` is for one unit; what a buyer paid is copied into the order's items.
create table if not exists product (
  shop_id bigint unsigned not null,
  product_id binary(16) not null,
  title varchar(200) not null,
  price decimal(19,4) not null,
  currency char(3) character set ascii collate ascii_bin not null,
  created_at datetime(3) not null default (utc_timestamp(3)),
  updated_at datetime(3) not null default (utc_timestamp(3)),
  primary key (shop_id, product_id),
  constraint product_price_not_negative check (price >= 0)
);

-- How many units may still be sold: what is on the shelf less what open orders hold. Apart from `product`, because each
-- checkout changes this row and hardly anything changes that one. A checkout takes its units with
-- `available = available - n where available >= n`; the constraint is the second line of defence, which is why the
-- column is signed.
create table if not exists inventory (
  shop_id bigint unsigned not null,
  product_id binary(16) not null,
  available bigint not null,
  updated_at datetime(3) not null default (utc_timestamp(3)),
  primary key (shop_id, product_id),
  constraint inventory_available_not_negative check (available >= 0)
);
