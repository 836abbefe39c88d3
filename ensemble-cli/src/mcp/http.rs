//! MCP over streamable HTTP on the loopback interface, for clients that start nothing.
//!
//! Every request needs the bearer token. A browser's request is refused unless its origin is this
//! machine. So is a request that came under another host's name (DNS rebinding).

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use ensemble_core::durable::open_file;
use ensemble_core::message::Digest;
use hyper::{StatusCode, header};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;

use super::{McpServer, ToolContext};
use crate::context::{Context, Failure, Outcome};
use crate::loopback::{self, HttpAnswer, HttpConnection, HttpQuestion, fresh_token, http_answer};

const PATH: &str = "/mcp";
const ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
const OTHERS: u32 = 0o077;
const TOKEN_BYTES_MAX: u64 = 1024;
const TOKEN_BYTES_MIN: usize = 16;

/// Serves any number of clients, all as this agent, until it is ended. `port` 0 takes a free one.
pub(crate) fn serve(
    context: &Context,
    desk: ToolContext,
    port: u16,
    token_file: Option<&Path>,
) -> Outcome {
    let token = token(token_file)?;
    let (runtime, listener) = loopback::listen(port)?;
    let address = listener.local_addr()?;
    let url = format!("http://{address}{PATH}");
    match (context.out.is_json(), token_file) {
        (true, None) => context.out.object(&json!({ "url": url, "token": token }))?,
        (true, Some(_)) => context.out.object(&json!({ "url": url }))?,
        (false, None) => {
            context.out.line(format!("{url}\nAuthorization: Bearer {token}"))?;
        }
        (false, Some(_)) => context.out.line(&url)?,
    }
    context.out.flush()?;
    let desk = Arc::new(desk);
    let service = StreamableHttpService::new(
        move || Ok(McpServer::new(Arc::clone(&desk))),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default().with_allowed_origins(ORIGINS),
    );
    let site = McpSite { service, expected: Digest::of(format!("Bearer {token}").as_bytes()) };
    let site = Arc::new(site);
    runtime.block_on(loopback::serve(listener, move |connection, request| {
        let site = Arc::clone(&site);
        async move { site.answer(&connection, request).await }
    }));
    Ok(())
}

struct McpSite {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    expected: Digest,
}

impl McpSite {
    async fn answer(&self, connection: &HttpConnection, request: HttpQuestion) -> HttpAnswer {
        if !self.is_allowed(&request) {
            return refuse();
        }
        if !connection.trust() {
            return http_answer(StatusCode::SERVICE_UNAVAILABLE, &[], "");
        }
        if request.uri().path() != PATH {
            return http_answer(StatusCode::NOT_FOUND, &[], "");
        }
        let content = request.headers().get(header::CONTENT_TYPE);
        let is_json = content.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
        let mut answer = self.service.handle(request).await;
        // JSON of the right type that cannot be read is a bad request, not one of another type.
        if is_json && answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            *answer.status_mut() = StatusCode::BAD_REQUEST;
        }
        answer
    }

    /// Compared by digest, so that the time it takes says nothing of the token.
    fn is_allowed(&self, request: &HttpQuestion) -> bool {
        let given = request.headers().get(header::AUTHORIZATION);
        given.is_some_and(|given| Digest::of(given.as_bytes()) == self.expected)
    }
}

fn refuse() -> HttpAnswer {
    let text = "send `Authorization: Bearer TOKEN`; `ensemble mcp --http` has printed the token, or \
                read it from its --token-file\n";
    let about = [
        (header::WWW_AUTHENTICATE, "Bearer"),
        (header::CONNECTION, "close"),
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
    ];
    http_answer(StatusCode::UNAUTHORIZED, &about, text)
}

fn token(file: Option<&Path>) -> Outcome<String> {
    let Some(path) = file else { return fresh_token() };
    let fail = |error: std::io::Error| {
        Failure::refused(format!("cannot use the token file {}: {error}", path.display()))
    };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path) {
        Ok(mut file) => {
            let token = fresh_token()?;
            file.write_all(format!("{token}\n").as_bytes()).map_err(fail)?;
            Ok(token)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mut text = String::new();
            let Some((file, _)) = open_file(path)? else {
                return Err(fail(ErrorKind::NotFound.into()));
            };
            if file.metadata().map_err(fail)?.mode() & OTHERS != 0 {
                let open =
                    format!("other users may read or write the token file {}", path.display());
                return Err(Failure::refused(open)
                    .with_hint("`chmod 600` it, or remove it for a fresh one"));
            }
            file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(fail)?;
            let token = text.trim();
            if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(Failure::refused(format!(
                    "{} has no token: {TOKEN_BYTES_MIN} or more letters and digits in one line, or \
                     remove it for a fresh one",
                    path.display()
                )));
            }
            Ok(token.to_owned())
        }
        Err(error) => Err(fail(error)),
    }
}
