//! A large shop: orders with JSON and text, their items, and three secondary indexes, made by the server itself.

use anyhow::Result;
use tests::Server;

/// The tables; an application's own would look like this.
pub(super) const TABLES: [&str; 2] = ["bench_order", "bench_item"];

const ORDER: &str = "create table if not exists bench_order (
  shop_id bigint unsigned not null,
  order_id binary(16) not null,
  number bigint unsigned not null,
  email varchar(254) character set utf8mb4 collate utf8mb4_0900_bin not null,
  total decimal(19,4) not null,
  note text null,
  data json not null,
  created_at datetime(3) not null,
  primary key (shop_id, order_id),
  unique key bench_order_number (shop_id, number),
  key bench_order_email (shop_id, email))";

const ITEM: &str = "create table if not exists bench_item (
  shop_id bigint unsigned not null,
  order_id binary(16) not null,
  line smallint unsigned not null,
  product_id binary(16) not null,
  title varchar(200) not null,
  price decimal(19,4) not null,
  quantity int not null,
  primary key (shop_id, order_id, line),
  key bench_item_product (shop_id, product_id))";

/// Rows that one statement makes: a transaction that replicas take in some seconds.
const BATCH: u64 = 20_000;
/// Items of an order.
const ITEMS: u64 = 3;
/// About what an order with its items takes on the disk, secondary indexes and all.
const ORDER_BYTES: u64 = 1_700;

/// Makes the tables.
pub(super) async fn tables(server: &Server) -> Result<()> {
    server.run(ORDER).await?;
    server.run(ITEM).await
}

/// Fills them for one shop up to a size, and says how many rows there are.
pub(super) async fn fill(server: &Server, shop: u64, mib: u64) -> Result<u64> {
    let orders = (mib * 1024 * 1024 / ORDER_BYTES).max(1);
    let mut from = 0;
    while from < orders {
        let upto = (from + BATCH).min(orders);
        // A key that is spread as a UUIDv7 is: in order of time, with a random end.
        let numbers = format!(
            "with recursive n (i) as (select {from} union all select i + 1 from n where i + 1 < {upto})"
        );
        let id = "unhex(concat(lpad(hex(1700000000000 + i * 40), 12, '0'), substr(sha2(i, 256), 1, 20)))";
        server
            .run(&format!(
                "set session cte_max_recursion_depth = {BATCH}; \
                 insert into bench_order {numbers} select {shop}, {id}, i, concat('buyer-', i % 5000, '@example.com'), \
                 (i % 9999) / 7, repeat(sha2(i, 256), 4), \
                 json_object('channel', 'web', 'tags', json_array('a', i % 17, sha2(i, 224)), \
                 'address', json_object('street', repeat('x', i % 60), 'zip', lpad(i % 99999, 5, '0'))), \
                 '2026-01-01' + interval i second from n"
            ))
            .await?;
        for line in 0..ITEMS {
            server
                .run(&format!(
                    "set session cte_max_recursion_depth = {BATCH}; \
                     insert into bench_item {numbers} select {shop}, {id}, {line}, \
                     unhex(substr(sha2(i % 300 + {line}, 256), 1, 32)), concat('A thing for sale number ', i % 300), \
                     (i % 300) / 3, 1 + i % 3 from n"
                ))
                .await?;
        }
        from = upto;
    }
    Ok(orders * (1 + ITEMS))
}
