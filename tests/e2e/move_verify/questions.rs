//! Questions that an application registered about its rows: what counts is what the target shows and the source does not.

use anyhow::{Context, Result, ensure};
use shared::moves::MoveState;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::{Fleet, Shop};

/// More than one look at an answer is told of.
const PRODUCTS: usize = 300;

/// Registers a question at both pods.
async fn ask(fleet: &Fleet, question: &str) -> Result<()> {
    let question = question.replace('\'', "''");
    let sql = format!("insert into move_check (name, question) values ('x', '{question}')");
    fleet.on_both(&sql).await
}

async fn forget(fleet: &Fleet) -> Result<()> {
    let sql = "delete from move_check where name = 'x'";
    fleet.on_both(sql).await
}

async fn shop_with_products(fleet: &Fleet) -> Result<Shop> {
    let sql = format!(
        "insert into product (shop_id, product_id, title, price, currency) \
         with recursive n as (select 1 n union all select n + 1 from n where n < {PRODUCTS}) \
         select {{shop}}, unhex(lpad(hex(n), 32, '0')), 'One of many', 1, 'EUR' from n"
    );
    fleet.shop_with_rows(&sql).await
}

/// Each server tells the rows in an order of its own. A row that the target alone shows ends the move all the same, and is
/// told with its question.
pub(super) async fn what_contradicts_at_both_sides_is_no_difference_however_much(
    fleet: &Fleet,
) -> Result<()> {
    let shop = shop_with_products(fleet).await?;
    ask(
        fleet,
        "select hex(product_id) from product where shop_id = ? order by rand()",
    )
    .await?;
    let moved = fleet.move_shop(&shop, 2).await;
    forget(fleet).await?;
    fleet.finish_move(moved?.id).await?;

    let shop = shop_with_products(fleet).await?;
    ask(
        fleet,
        "select hex(p.product_id) from product p join pod_identity i on i.pod = 2 where p.shop_id = ? order by rand()",
    )
    .await?;
    let control = ControlDoor::of(fleet).await?;
    let id = fleet.order_move(&shop, 2).await?;
    let failed = control.reaches(id, &[MoveState::Failed], MOVED_MAX).await;
    forget(fleet).await?;
    let error = failed?.error.context("a failed move without error")?;
    ensure!(
        error.contains("at pod 2, but not at pod 1") && error.contains("not so that x: "),
        "{error}"
    );
    control.tell(id, "abort").await?.wants(200)?;
    let ended = [MoveState::Aborted];
    control.reaches(id, &ended, MOVED_MAX).await.map(drop)
}

/// A question that its server thinks about for longer than a silent session lives, and that both sides contradict: nobody's
/// session is gone afterwards.
pub(super) async fn an_answer_that_takes_minutes_loses_no_session() -> Result<()> {
    let fleet = Fleet::start().await?;
    let moved = async {
        let shop = shop_with_products(&fleet).await?;
        // Each session thinks once.
        ask(
            &fleet,
            "select sleep(if(@thought is null, 40, 0)), @thought := 1 from shop_home where shop_id = ?",
        )
        .await?;
        let control = ControlDoor::of(&fleet).await?;
        let id = fleet.order_move(&shop, 2).await?;
        let moved = control
            .reaches(id, &[MoveState::Observing], 4 * MOVED_MAX)
            .await?;
        ensure!(
            moved.owner == 1,
            "taken up {} times: something was lost on the way",
            moved.owner
        );
        Ok(())
    };
    let moved = moved.await;
    fleet.stop().await?;
    moved
}
