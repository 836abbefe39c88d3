//! `recv_wait`: bounded, with progress each second, and cancelled as the protocol says.
//!
//! A message that came in the moment of a cancellation is returned: its client does not know of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ensemble_app::mail::receiving::AwaitedMail;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ProgressNotificationParam};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolAnswer, arguments, mail, read_arguments, schema_of};
use crate::mcp::ToolContext;

const NAME: &str = "recv_wait";
const TIMEOUT_SECONDS: u64 = 60;
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecvWaitParams {
    /// How long (default 60, at most 3600).
    #[schemars(range(max = 3600))]
    timeout_seconds: Option<u64>,
}

pub(super) fn wait(desk: &ToolContext, wait: RecvWaitParams) -> ToolAnswer {
    wait_for(desk, &wait, &AtomicBool::new(false))
}

pub(in crate::mcp) type WaitingCall = fn(&ToolContext, Value, &AtomicBool) -> ToolAnswer;

/// The call of a tool that waits with these arguments; `None` for all others.
pub(in crate::mcp) fn waiting_call(tool: &str, value: &Value) -> Option<WaitingCall> {
    match tool {
        NAME => Some(|desk, value, is_cancelled| {
            let value = read_arguments(&schema_of::<RecvWaitParams>(), value)?;
            wait_for(desk, &arguments::<RecvWaitParams>(value)?, is_cancelled)
        }),
        "send" if value.get("wait_for_reply").is_some() => Some(|desk, value, is_cancelled| {
            let value = read_arguments(&schema_of::<mail::SendParams>(), value)?;
            mail::send_until(desk, arguments::<mail::SendParams>(value)?, is_cancelled)
        }),
        _ => None,
    }
}

pub(in crate::mcp) async fn wait_with_progress(
    desk: Arc<ToolContext>,
    call: WaitingCall,
    value: Value,
    context: RequestContext<RoleServer>,
) -> Result<ToolAnswer, ErrorData> {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let (began, waits) = (Instant::now(), (Arc::clone(&desk), Arc::clone(&is_cancelled)));
    let mut waiting = tokio::task::spawn_blocking(move || call(&waits.0, value, &waits.1));
    let (cancelled, flag) = (context.ct.clone(), Arc::clone(&is_cancelled));
    let watch = tokio::spawn(async move {
        cancelled.cancelled().await;
        flag.store(true, Ordering::SeqCst);
    });
    let token = context.meta.get_progress_token();
    let answer = loop {
        if let Ok(done) = tokio::time::timeout(PROGRESS_EVERY, &mut waiting).await {
            break done.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        if let Some(token) = &token {
            let waited = began.elapsed().as_secs_f64();
            let progress = ProgressNotificationParam::new(token.clone(), waited);
            // A client that has gone is seen by the transport.
            let _ = context.peer.notify_progress(progress).await;
        }
    };
    watch.abort();
    if is_cancelled.load(Ordering::SeqCst)
        && let Ok(Value::Object(result)) = &answer
        && let Some(message) = result.get("message")
    {
        let release = json!({ "id": message["id"], "epoch": message["epoch"] });
        let give_back = move || arguments(release).and_then(|it| mail::release(&desk, it));
        let _ = tokio::task::spawn_blocking(give_back).await;
    }
    Ok(answer)
}

fn wait_for(desk: &ToolContext, wait: &RecvWaitParams, is_cancelled: &AtomicBool) -> ToolAnswer {
    let seconds = wait.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
    let mut mail = AwaitedMail::begin(&desk.project, desk.queue()?, &desk.mailbox, &desk.agent);
    let began = Instant::now();
    loop {
        let waited = began.elapsed();
        let left = Duration::from_secs(seconds).saturating_sub(waited);
        if is_cancelled.load(Ordering::SeqCst) {
            return Ok(json!({ "received": false, "waited_seconds": waited.as_secs() }));
        }
        if let Some(delivery) = mail.receive()? {
            let message = mail::taken(desk, &delivery, true)?;
            return Ok(json!({
                "received": true, "waited_seconds": waited.as_secs(), "message": message,
            }));
        }
        if left.is_zero() {
            return Ok(json!({ "received": false, "waited_seconds": waited.as_secs() }));
        }
        mail.sleep(left.min(PROGRESS_EVERY))?;
    }
}
