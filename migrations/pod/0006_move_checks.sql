-- What a move asks of a shop's rows beyond their being equal.

-- A question whose answer shall be empty: one `select` that returns the shop's rows that contradict each other. `?` stands
-- for the shop's id, wherever it is needed; no `limit`, the mover sets its own. A move asks it at the target when it
-- verifies: a row that the target shows and the source does not stops the move. An application registers its own in the
-- migration that makes the tables; a mover knows nothing of what they mean.
create table if not exists move_check (
  name varchar(64) not null primary key,
  question text not null
);

insert ignore into table_kind (name, kind) values ('move_check', 'local');

insert ignore into move_check (name, question) values
  ('an order has all of its items',
   'select hex(o.order_id), o.line_count, count(i.line)
    from shop_order o left join order_item i on i.shop_id = o.shop_id and i.order_id = o.order_id
    where o.shop_id = ? group by o.order_id, o.line_count having count(i.line) <> o.line_count'),
  ('an order costs what its items cost',
   'select hex(o.order_id), o.total, sum(i.price * i.quantity)
    from shop_order o join order_item i on i.shop_id = o.shop_id and i.order_id = o.order_id
    where o.shop_id = ? group by o.order_id, o.total having sum(i.price * i.quantity) <> o.total'),
  ('an item belongs to an order',
   'select hex(i.order_id), i.line
    from order_item i left join shop_order o on o.shop_id = i.shop_id and o.order_id = i.order_id
    where i.shop_id = ? and o.order_id is null'),
  ('an order belongs to a customer',
   'select hex(o.order_id), hex(o.customer_id)
    from shop_order o left join customer c on c.shop_id = o.shop_id and c.customer_id = o.customer_id
    where o.shop_id = ? and c.customer_id is null'),
  ('a payment belongs to an order and asks for its total',
   'select hex(p.payment_id), p.amount, o.total
    from payment p left join shop_order o on o.shop_id = p.shop_id and o.order_id = p.order_id
    where p.shop_id = ? and (o.order_id is null or o.total <> p.amount)'),
  ('a product has a stock',
   'select hex(p.product_id)
    from product p left join inventory v on v.shop_id = p.shop_id and v.product_id = p.product_id
    where p.shop_id = ? and v.product_id is null'),
  ('a stock belongs to a product',
   'select hex(v.product_id), v.available
    from inventory v left join product p on p.shop_id = v.shop_id and p.product_id = v.product_id
    where v.shop_id = ? and p.product_id is null'),
  ('a shipment belongs to an order',
   'select hex(s.shipment_id), hex(s.order_id)
    from shipment s left join shop_order o on o.shop_id = s.shop_id and o.order_id = s.order_id
    where s.shop_id = ? and o.order_id is null');
