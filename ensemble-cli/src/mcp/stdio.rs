//! MCP over stdin and stdout, as agents start it.

use std::sync::Arc;

use rmcp::ServiceExt as _;

use super::{Desk, Server};
use crate::exit::{Failure, Outcome};

/// Serves one client until it closes stdin.
pub(crate) fn serve(desk: Desk) -> Outcome {
    let runtime = super::http::runtime()?;
    let served = runtime.block_on(async {
        let server = Server::new(Arc::new(desk)).serve(rmcp::transport::io::stdio()).await;
        match server {
            Ok(running) => running.waiting().await.map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    });
    // A thread that still reads stdin must not keep this from ending.
    runtime.shutdown_background();
    served.map_err(|error| Failure::refused(format!("the MCP client went wrong: {error}")))
}
