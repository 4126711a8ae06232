//! An apply's record at the control server: an operation with its steps, so that others see what is going on and what was
//! cut off. A help, not a need: without a control server (it may be what is being started) an apply goes on unrecorded.

use tokio::sync::Mutex;
use uuid::Uuid;

use crate::api::{Operation, OperationChange, OperationNew, OperationState};
use crate::client::Control;
use crate::home_dir::HomeDir;
use crate::observe;
use crate::step::Step;

/// The kind of the operation.
const KIND: &str = "apply";

pub(super) struct Record {
    home: HomeDir,
    id: String,
    steps: Vec<String>,
    control: Mutex<Option<Control>>,
}

impl Record {
    pub(super) fn new(home: &HomeDir, steps: &[Step]) -> Self {
        Self {
            home: home.clone(),
            id: Uuid::now_v7().to_string(),
            steps: steps.iter().map(Step::to_string).collect(),
            control: Mutex::new(None),
        }
    }

    /// Records that a step begins. The first time that a control server is there, the operation begins.
    pub(super) async fn step(&self, step: &Step) {
        let mut held = self.control.lock().await;
        if held.is_none() {
            *held = self.begin().await;
        }
        if let Some(control) = &*held {
            let change = OperationChange {
                step: Some(step.to_string()),
                ..OperationChange::default()
            };
            let _ = control.operation_change(&self.id, &change).await;
        }
    }

    async fn begin(&self) -> Option<Control> {
        let control = observe::control(&self.home).ok().flatten()?;
        let new = OperationNew {
            id: self.id.clone(),
            kind: KIND.into(),
            subject: "fleet.toml".into(),
            detail: serde_json::json!({ "steps": self.steps }),
        };
        let known = control.operations().await.ok()?;
        control.operation_begin(&new).await.ok()?;
        for cut_off in known.iter().filter(|it| is_cut_off(it)) {
            let error = format!(
                "cut off at {:?}; {} goes on",
                cut_off.step.as_deref().unwrap_or("its beginning"),
                self.id
            );
            let change = OperationChange {
                state: Some(OperationState::Failed),
                error: Some(error),
                ..OperationChange::default()
            };
            let _ = control.operation_change(&cut_off.id, &change).await;
        }
        Some(control)
    }

    /// Records how it ended.
    pub(super) async fn end(&self, done: &anyhow::Result<()>) {
        let held = self.control.lock().await;
        let Some(control) = &*held else { return };
        let change = match done {
            Ok(()) => OperationChange {
                state: Some(OperationState::Done),
                ..OperationChange::default()
            },
            Err(fault) => OperationChange {
                state: Some(OperationState::Failed),
                error: Some(format!("{fault:#}")),
                ..OperationChange::default()
            },
        };
        let _ = control.operation_change(&self.id, &change).await;
    }
}

/// Only one apply runs at a time, so another that says it does was killed.
fn is_cut_off(operation: &Operation) -> bool {
    operation.kind == KIND && operation.state == OperationState::Running
}
