//! A program that is spoken to by JSON-RPC: calls that it answers, and what it says by itself.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ensemble_app::failure::{Failure, Outcome};
use ensemble_core::watch::sleep_until_any;
use serde_json::{Value, json};

#[derive(Default)]
pub(super) struct RpcState {
    last_id: u64,
    has_ended: bool,
    news: VecDeque<Value>,
}

pub(super) trait RpcPeer: AsFd {
    const ANSWER_PATIENCE: Duration;
    const NAME: &'static str;

    fn state(&mut self) -> &mut RpcState;

    fn send(&mut self, said: Value) -> Outcome;

    fn read(&mut self) -> Outcome<Option<Value>>;

    fn has_ended(&mut self) -> bool {
        self.state().has_ended
    }

    fn end(&mut self, why: &str) -> Failure {
        self.state().has_ended = true;
        Failure::refused(format!("{} has ended: {why}", Self::NAME))
    }

    /// Calls a method whose answer comes later, among the news, under this id.
    fn request(&mut self, method: &str, params: Value) -> Outcome<u64> {
        self.state().last_id += 1;
        let id = self.state().last_id;
        self.send(json!({ "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    fn call(&mut self, method: &str, params: Value) -> Outcome<Value> {
        self.call_within(method, params, Self::ANSWER_PATIENCE)
    }

    fn call_within(&mut self, method: &str, params: Value, patience: Duration) -> Outcome<Value> {
        let id = self.request(method, params)?;
        let until = Instant::now() + patience;
        loop {
            while let Some(mut said) = self.read()? {
                if said.get("method").is_some() || said["id"] != id {
                    self.state().news.push_back(said);
                } else {
                    return match said.get("error") {
                        Some(error) => Err(Failure::refused(format!("{method}: {error}"))),
                        None => Ok(said["result"].take()),
                    };
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::refused(format!("{method}: no answer")));
            }
            sleep_until_any(&[self.as_fd()], Some(left))
                .map_err(|error| Failure::refused(error.to_string()))?;
        }
    }

    /// The next thing that was said; `None` if there is nothing new. An answer that came too late has no method.
    fn news(&mut self) -> Outcome<Option<Value>> {
        match self.state().news.pop_front() {
            Some(news) => Ok(Some(news)),
            None => self.read(),
        }
    }
}
