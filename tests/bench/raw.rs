//! A checkout as bare statements on one connection: what a pod sends, without the pod. [`crate::same`] compares the two.

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor};
use tests::{Product, Shop};
use uuid::Uuid;

/// What a raw checkout is about.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) shop: u64,
    pub(crate) epoch: u64,
    pub(crate) products: Vec<Product>,
    /// Whether each transaction reads the home first, as a pod's does.
    pub(crate) fence: bool,
}

impl Raw {
    pub(crate) fn of(shop: &Shop, products: &[Product], fence: bool) -> Self {
        let (id, epoch) = (shop.id.get(), shop.epoch.get());
        Self {
            shop: id,
            epoch,
            products: products.to_vec(),
            fence,
        }
    }

    /// One checkout of one unit, with its three transactions: reserve, charge (the built-in gateway's books), settle.
    pub(crate) async fn checkout(&self, on: &mut MySqlConnection, buyer: usize) -> Result<()> {
        let product = &self.products[rand::rng().random_range(0..self.products.len())];
        let product = product.id.parse().context("a product's id")?;
        let order = Order {
            id: Uuid::now_v7(),
            key: Uuid::now_v7().to_string(),
            email: format!("buyer-{buyer}@example.com"),
            product,
            me: Uuid::now_v7(),
        };
        self.reserve(on, &order).await.context("reserve")?;
        self.charge(on, &order).await.context("charge")?;
        self.settle(on, &order).await.context("settle")
    }

    async fn begin(&self, on: &mut MySqlConnection) -> Result<()> {
        let fence = if self.fence {
            format!(
                "select i.pod, i.term, i.incarnation, i.reconciled_incarnation, \
                 @@global.read_only or @@global.super_read_only as closed, \
                 h.epoch, h.state, h.mark_pod, h.mark_epoch, h.ready_gtid \
                 from pod_identity i left join shop_home h on h.shop_id = {} where i.one = 1 \
                 for share nowait",
                self.shop
            )
        } else {
            String::new()
        };
        let text = format!("set session wait_timeout = 2; begin; savepoint podhost_guard; {fence}");
        on.fetch_all(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        Ok(())
    }

    async fn commit(&self, on: &mut MySqlConnection) -> Result<()> {
        let text = "release savepoint podhost_guard; commit; set session wait_timeout = 600; \
                    select @@global.gtid_executed as executed";
        on.fetch_all(sqlx::raw_sql(text)).await?;
        Ok(())
    }

    async fn reserve(&self, on: &mut MySqlConnection, order: &Order) -> Result<()> {
        self.begin(on).await?;
        let claim = sqlx::query(
            "insert into idempotency (shop_id, endpoint, idem_key, fingerprint, holder, held_until)
             values (?, 'checkouts', ?, ?, ?, now(3) + interval ? microsecond)",
        );
        let (fingerprint, hold) = ([7_u8; 32], 10_000_000_u64);
        let claim = claim
            .bind(self.shop)
            .bind(&order.key)
            .bind(fingerprint.as_slice());
        on.execute(claim.bind(order.me.as_bytes().as_slice()).bind(hold))
            .await?;
        let price = sqlx::query(
            "select product_id, title, price, currency from product
             where shop_id = ? and product_id in (?)",
        );
        on.fetch_all(price.bind(self.shop).bind(order.product))
            .await?;
        let take = sqlx::query(
            "update inventory set available = available - ?, updated_at = utc_timestamp(3)
             where shop_id = ? and product_id = ? and available >= ?",
        );
        let taken = on
            .execute(take.bind(1).bind(self.shop).bind(order.product).bind(1))
            .await?;
        ensure!(taken.rows_affected() == 1, "sold out");
        let customer = self.customer(on, order).await?;
        let insert = sqlx::query(
            "insert into shop_order
               (shop_id, order_id, customer_id, status, total, currency, line_count, access_key)
             values (?, ?, ?, 'pending', '12.00', 'USD', 1, ?)",
        );
        let access = [9_u8; 32];
        let insert = insert.bind(self.shop).bind(order.id).bind(customer);
        on.execute(insert.bind(access.as_slice())).await?;
        let item = sqlx::query(
            "insert into order_item (shop_id, order_id, line, product_id, title, price, quantity)
             values (?, ?, 0, ?, 'Mug', '12.00', 1)",
        );
        on.execute(item.bind(self.shop).bind(order.id).bind(order.product))
            .await?;
        let payment = sqlx::query(
            "insert into payment
               (shop_id, payment_id, order_id, method, instruction, provider_key, request_key,
                amount, currency, status, due_at)
             values (?, ?, ?, 'bogus', 'approve', ?, ?, '12.00', 'USD', 'pending',
                utc_timestamp(3) + interval ? second)",
        );
        let payment = payment.bind(self.shop).bind(Uuid::now_v7()).bind(order.id);
        on.execute(payment.bind(order.charge_key()).bind(&order.key).bind(15))
            .await?;
        let note = sqlx::query(
            "update idempotency set note = ? where shop_id = ? and endpoint = 'checkouts' and idem_key = ?",
        );
        on.execute(
            note.bind([0_u8; 120].as_slice())
                .bind(self.shop)
                .bind(&order.key),
        )
        .await?;
        self.event(on, order, "order.created").await?;
        self.commit(on).await
    }

    async fn customer(&self, on: &mut MySqlConnection, order: &Order) -> Result<Uuid> {
        let find = "select customer_id from customer where shop_id = ? and email = ?";
        let query = || sqlx::query_scalar(find).bind(self.shop).bind(&order.email);
        if let Some(id) = query().fetch_optional(&mut *on).await? {
            return Ok(id);
        }
        let insert = sqlx::query(
            "insert into customer (shop_id, customer_id, email) values (?, ?, ?)
             on duplicate key update email = customer.email",
        );
        on.execute(
            insert
                .bind(self.shop)
                .bind(Uuid::now_v7())
                .bind(&order.email),
        )
        .await?;
        Ok(query().fetch_one(&mut *on).await?)
    }

    async fn event(&self, on: &mut MySqlConnection, order: &Order, kind: &str) -> Result<()> {
        let insert = sqlx::query(
            "insert into outbox (shop_id, event_id, epoch, kind, subject, payload)
             values (?, ?, ?, ?, ?, ?)",
        );
        let id = Uuid::now_v7();
        let insert = insert
            .bind(self.shop)
            .bind(id.as_bytes().as_slice())
            .bind(self.epoch);
        let payload = br#"{"total":"12.00","currency":"USD"}"#.as_slice();
        on.execute(insert.bind(kind).bind(order.id.to_string()).bind(payload))
            .await?;
        Ok(())
    }

    async fn charge(&self, on: &mut MySqlConnection, order: &Order) -> Result<()> {
        self.begin(on).await?;
        let insert = sqlx::query(
            "insert into bogus_charge
               (shop_id, charge_key, amount, currency, verdict, charges, answers_at)
             values (?, ?, '12.00', 'USD', 'approved', 1, utc_timestamp(3) + interval 0 second)
             on duplicate key update charges = charges + 1",
        );
        on.execute(insert.bind(self.shop).bind(order.charge_key()))
            .await?;
        let find = sqlx::query(
            "select verdict, amount, currency, answers_at > utc_timestamp(3) as thinking
             from bogus_charge where shop_id = ? and charge_key = ?",
        );
        on.fetch_one(find.bind(self.shop).bind(order.charge_key()))
            .await?;
        self.commit(on).await
    }

    async fn settle(&self, on: &mut MySqlConnection, order: &Order) -> Result<()> {
        self.begin(on).await?;
        let resume = sqlx::query(
            "select fingerprint, status, media, location, answer, note, holder,
               held_until is not null and held_until > now(3) as held
             from idempotency
             where shop_id = ? and endpoint = 'checkouts' and idem_key = ? for update",
        );
        on.fetch_one(resume.bind(self.shop).bind(&order.key))
            .await?;
        let lock = sqlx::query(
            "select status from shop_order where shop_id = ? and order_id = ? for update",
        );
        on.fetch_one(lock.bind(self.shop).bind(order.id)).await?;
        let paid = sqlx::query(
            "update payment set status = 'approved', due_at = null, updated_at = utc_timestamp(3)
             where shop_id = ? and order_id = ? and status = 'pending'",
        );
        on.execute(paid.bind(self.shop).bind(order.id)).await?;
        let step = sqlx::query(
            "update shop_order set status = 'paid', updated_at = utc_timestamp(3)
             where shop_id = ? and order_id = ? and status = 'pending'",
        );
        on.execute(step.bind(self.shop).bind(order.id)).await?;
        let read = sqlx::query(
            "select o.order_id, o.status, o.total, o.currency, o.access_key, o.created_at, c.email
             from shop_order o
             join customer c on c.shop_id = o.shop_id and c.customer_id = o.customer_id
             where o.shop_id = ? and o.order_id = ?",
        );
        on.fetch_one(read.bind(self.shop).bind(order.id)).await?;
        let items = sqlx::query(
            "select order_id, product_id, title, price, quantity from order_item
             where shop_id = ? and order_id between ? and ? order by order_id desc, line",
        );
        on.fetch_all(items.bind(self.shop).bind(order.id).bind(order.id))
            .await?;
        let store = sqlx::query(
            "update idempotency set status = 201, media = 'application/json', location = null,
               answer = ?, holder = ?, held_until = null
             where shop_id = ? and endpoint = 'checkouts' and idem_key = ?",
        );
        let store = store
            .bind([b' '; 400].as_slice())
            .bind(order.me.as_bytes().as_slice());
        on.execute(store.bind(self.shop).bind(&order.key)).await?;
        self.event(on, order, "order.paid").await?;
        self.commit(on).await
    }
}

struct Order {
    id: Uuid,
    key: String,
    email: String,
    product: Uuid,
    me: Uuid,
}

impl Order {
    fn charge_key(&self) -> String {
        format!("bench-{}", self.id)
    }
}
