//! The harness of the end-to-end tests: real binaries on real MySQL and Redis, nothing pretended.
//!
//! A test reads like this:
//!
//! ```ignore
//! /// A buyer gets an order, and the stock goes down by what was bought.
//! async fn a_checkout_sells(fleet: &Fleet) -> Result<()> {
//!     let shop = fleet.shop(1).await?;
//!     let mug = shop.product("Mug", "12.00", 5).await?;
//!     let order = shop.buy("key-1", &[(&mug, 2)]).await?;
//!     assert_eq!(order.status, 201);
//!     assert_eq!(shop.available(&mug).await?, 3);
//!     Ok(())
//! }
//! ```
//!
//! In reading order. What must never come in here: a fake of MySQL, Redis, the edge or a pod.

// Waits for a state with a deadline, and says the last state seen when it never came.
pub mod wait;
pub use wait::wait_until;

// Processes by pid: signals, and which of them belong to a fleet.
pub mod process;

// Runs `podctl`.
pub mod podctl;

// What `podctl status --json` says.
pub mod status;
pub use status::Status;

// One HTTP request and its answer, to the edge by host or to a pod with signed route headers.
pub mod http_call;
pub use http_call::{Answer, Call, Edge, PodDoor};

// A shop under test: its products, checkouts and orders.
pub mod shop;
pub use shop::{Product, Shop};

// Metrics of an admin port.
pub mod metrics;

// Many buyers at once, for the tests that break something meanwhile.
pub mod load;

// What the clients of a shop asked and were told, and whether that can have been.
pub mod history;

// The whole trade of a shop, for the tests that move it meanwhile.
pub mod trade;

// Sessions on the fleet's MySQL servers, and the rows that tests look at.
pub mod mysql;
pub use mysql::Server;

// Events as a consumer gets them.
pub mod outbox;

// A TCP proxy whose wire can be cut, slowed and silenced.
pub mod chaos;

// A proxy that understands MySQL's packets and cuts at a chosen moment of a transaction.
pub mod tap;

// One MySQL server without a fleet.
pub mod bare_mysql;
pub use bare_mysql::BareMysql;

// A whole fleet: started by `podctl up`, stopped with asserts that nothing of it remains.
pub mod fleet;
pub use fleet::Fleet;

// A pod process of the test's own, with an edited config, beside those of the fleet.
pub mod own_pod;

// An edge of the test's own, with an edited config, beside that of the fleet.
pub mod own_edge;

// Moves of shops, and the copies that they leave.
pub mod moves;

// Fail points of the mover.
pub mod failpoint;

// A second control server on a fleet's catalog, which loses its moves.
pub mod own_control;

// Kills at random.
pub mod killer;

// What a stopped fleet leaves in its logs.
pub mod logs;

// The list of tests, the fleet they share, and the run.
pub mod suite;
