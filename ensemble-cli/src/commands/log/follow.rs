//! `ensemble log report --follow`: the page, served on this machine and kept up to date.
//!
//! ```text
//! a record was written, or REBUILD_MAX is over  --> the page is made anew, at most every REBUILD_MIN
//! GET /?token=… with the version that is shown  --> 304, or the whole page with its version
//! ```
//!
//! The address has a secret, and only the loopback interface listens. The page loads nothing else.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ensemble_core::message::Digest;
use ensemble_core::watch::Waiter;
use ensemble_history::session::page;
use hyper::{Method, StatusCode, header};
use serde_json::json;

use super::report::{present, story};
use crate::context::{Context, Outcome, locked};
use crate::loopback::{self, HttpAnswer, HttpConnection, HttpQuestion, fresh_token, http_answer};

/// The least time between two versions of the page.
const REBUILD_MIN: Duration = Duration::from_millis(500);
const PAUSE_PER_COST: u32 = 10;
/// The longest time between two versions: ages grow.
const REBUILD_MAX: Duration = Duration::from_secs(10);

type SharedPage = Arc<Mutex<(u64, String)>>;

#[derive(Clone)]
struct PageSite {
    page: SharedPage,
    secret: Arc<Digest>,
}

pub(super) fn serve(context: &Context, session: Option<String>, port: u16) -> Outcome {
    let secret = fresh_token()?;
    let (runtime, listener) = loopback::listen(port)?;
    let url = format!("http://{}/?token={secret}", listener.local_addr()?);
    let shared: SharedPage = Arc::new(Mutex::new((1, build(context, session.clone(), 1)?)));
    let said = format!("{url}\nopen it in a browser; Ctrl-C ends it");
    context.out.print_answer(&json!({ "url": url }), said)?;
    context.out.flush()?;
    let site =
        PageSite { page: Arc::clone(&shared), secret: Arc::new(Digest::of(secret.as_bytes())) };
    std::thread::spawn(move || {
        runtime.block_on(loopback::serve(listener, move |connection, request| {
            std::future::ready(site.answer(&connection, &request))
        }));
    });
    let project = context.project()?;
    let waiter = Waiter::for_logs(&[project.logs(), project.state.clone()]);
    for version in 2.. {
        let began = Instant::now();
        // If something cannot be read now, the last page stays.
        if let Ok(html) = build(context, session.clone(), version) {
            *locked(&shared) = (version, html);
        }
        let pause = REBUILD_MIN.max(began.elapsed() * PAUSE_PER_COST);
        std::thread::sleep(pause);
        waiter.wait(REBUILD_MAX.saturating_sub(pause));
    }
    Ok(())
}

fn build(context: &Context, session: Option<String>, version: u64) -> Outcome<String> {
    let story = story(context, session)?;
    Ok(page(&story, present(context, &story).as_ref(), Some(version)))
}

impl PageSite {
    fn answer(&self, connection: &HttpConnection, request: &HttpQuestion) -> HttpAnswer {
        let plain = (header::CONTENT_TYPE, "text/plain; charset=utf-8");
        match (request.uri().path(), request.method()) {
            ("/", &Method::GET | &Method::HEAD) => {}
            ("/", _) => {
                return http_answer(
                    StatusCode::METHOD_NOT_ALLOWED,
                    &[(header::ALLOW, "GET,HEAD")],
                    "",
                );
            }
            _ => return http_answer(StatusCode::NOT_FOUND, &[], ""),
        }
        let mut query = request.uri().query().unwrap_or_default().split('&');
        let token = query.find_map(|pair| pair.strip_prefix("token="));
        // Compared by digest, so that the time it takes says nothing of the secret.
        if token.is_none_or(|token| Digest::of(token.as_bytes()) != *self.secret) {
            let text = "open the address that `ensemble log report --follow` has printed\n";
            return http_answer(StatusCode::UNAUTHORIZED, &[plain], text);
        }
        if !connection.trust() {
            return http_answer(StatusCode::SERVICE_UNAVAILABLE, &[], "");
        }
        let (version, html) = {
            let page = locked(&self.page);
            (page.0.to_string(), page.1.clone())
        };
        let shown = request.headers().get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
        let tag = (header::ETAG, version.as_str());
        if shown == Some(&version) {
            return http_answer(StatusCode::NOT_MODIFIED, &[tag], "");
        }
        let about = [
            tag,
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        http_answer(StatusCode::OK, &about, html)
    }
}
