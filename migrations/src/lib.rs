//! SQL, embedded in order: `catalog/` for the control server's store, `pod/` for each pod's database.
