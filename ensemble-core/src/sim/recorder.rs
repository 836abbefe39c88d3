//! A recorder in memory.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::lock;
use crate::event_log::{RecordType, Recorder};

/// Remembers each record with its type and data, in their order.
#[derive(Clone, Debug, Default)]
pub struct SimRecorder(Arc<Mutex<Vec<(String, Value)>>>);

impl Recorder for SimRecorder {
    /// # Panics
    /// `kind` is not a type of record.
    fn record(&self, kind: &str, _actor: &str, data: Value) {
        assert!(RecordType::new(kind).is_ok(), "`{kind}` is not a type of record");
        lock(&self.0).push((kind.to_owned(), data));
    }
}

impl SimRecorder {
    pub fn count(&self, kind: &str) -> usize {
        lock(&self.0).iter().filter(|(known, _)| known == kind).count()
    }

    /// The data of all records of a type.
    pub fn of(&self, kind: &str) -> Vec<Value> {
        let records = lock(&self.0);
        records.iter().filter(|(known, _)| known == kind).map(|(_, data)| data.clone()).collect()
    }

    pub fn kinds(&self) -> Vec<String> {
        lock(&self.0).iter().map(|(kind, _)| kind.clone()).collect()
    }

    pub fn take_records(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *lock(&self.0))
    }
}
