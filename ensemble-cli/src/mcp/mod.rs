//! The MCP server: what agents can do with the queue, as tools (seed 003's completion tool, seed 004's
//! `shutdown_response` and `plan_approval`).
//!
//! ```text
//! client ── stdio or HTTP ── Server (rmcp) ── a thread for each call ── Desk ── ensemble-core
//! ```
//!
//! The server finds its identity once, when it starts, and uses it for all calls. No tool takes a
//! sender's name. The one that has a name (`agent` in the seed's schema) refuses any other. Each
//! tool does what its verb does, through the same calls. What a model can put right comes back as
//! the result of the tool, with what to write instead. Only an unknown tool is an error of the
//! protocol.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ensemble_app::door_hints::render_members;
use ensemble_app::introduction::with_people;
use ensemble_app::text::one_line;
use ensemble_app::watcher_start::revive_watcher;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult, ConstString,
    ContentBlock, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, ToolAnnotations, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;

use crate::context::locked;

mod desk;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
pub(crate) mod install;
mod resources;
mod stdio;
mod tools;

pub(crate) use desk::ToolContext;
pub(crate) use http::serve as serve_http;
pub(crate) use stdio::serve as serve_stdio;
#[cfg(feature = "fuzzing")]
pub(crate) use stdio::serve_client;
pub(crate) use tools::schemas;
use tools::waiting;

#[cfg(feature = "fuzzing")]
pub(crate) fn call(desk: &ToolContext, name: &str, arguments: Value) -> Result<Value, String> {
    let tool = tools::named(name).ok_or_else(|| format!("no tool `{name}`"))?;
    run_tool(tool, desk, arguments).map_err(|trouble| trouble.to_string())
}

fn run_tool(tool: &tools::ToolSpec, desk: &ToolContext, arguments: Value) -> tools::ToolAnswer {
    let schema = (tool.schema)(&|| desk.names());
    (tool.call)(desk, tools::read_arguments(&schema, arguments)?)
}

fn in_words_of_tools(desk: &ToolContext, answer: tools::ToolAnswer) -> tools::ToolAnswer {
    let render = |line: &str| tools::hints::render_call(desk, &(desk.read_hint)(line)?);
    match answer {
        Ok(mut value) => {
            render_members(&mut value, &render);
            Ok(value)
        }
        Err(trouble) => Err(trouble.with_hints(&render)),
    }
}

const CANCELLED_WITHIN: Duration = Duration::from_secs(1);
const NAMED_MAX: usize = 20;
/// The methods with parameters that are served, beside calls of tools.
const SERVED: [&str; 6] = [
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "resources/list",
    "subscriptions/listen",
    "tools/list",
];
const INSTRUCTIONS: &str = "Mail, steps and requests of a team of agents. Your mail: inbox \
    shows it, recv or recv_wait takes a message, reply answers it, settle says that its \
    work is done. `operator` is the person who runs this team: their word counts as your user's. A message of type `step` is a step to do; report it with submit_step_completion and in no other way.";

fn instructions(desk: &ToolContext) -> String {
    let roster = desk.project.roster();
    let role = roster.get(&desk.agent).ok().flatten().map(|member| member.role.to_string());
    let role = role.map_or_else(String::new, |role| format!(", in the role {}", one_line(&role)));
    let (members, _) = roster.entries().unwrap_or_default();
    let others = members.iter().filter(|member| member.name != desk.agent);
    let names: Vec<String> = others.take(NAMED_MAX).map(|member| member.name.to_string()).collect();
    let team = match names.is_empty() {
        true => String::new(),
        false => format!(" Others of your team: {}; list_agents tells more.", names.join(", ")),
    };
    let rules = with_people(&desk.project, INSTRUCTIONS);
    format!("You are {}{role}. {rules}{team}", desk.agent)
}

#[derive(Clone)]
pub(crate) struct McpServer {
    desk: Arc<ToolContext>,
    /// Subscriptions of a client of an older revision, by their resources; set when they are to end.
    subscribed: Arc<Mutex<BTreeMap<String, Arc<AtomicBool>>>>,
}

impl McpServer {
    pub(crate) fn new(desk: Arc<ToolContext>) -> Self {
        Self { desk, subscribed: Arc::default() }
    }

    /// Ends a subscription; whether there was one.
    fn end(&self, uri: &str) -> bool {
        let mut all = locked(&self.subscribed);
        all.remove(uri).inspect(|is_over| is_over.store(true, Ordering::SeqCst)).is_some()
    }

    /// Runs something that blocks, so that other calls continue in the meantime.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ToolContext) -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let desk = Arc::clone(&self.desk);
        let done = tokio::task::spawn_blocking(move || work(&desk)).await;
        done.map_err(internal)
    }

    async fn answer_call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let Some(tool) = tools::named(&request.name) else {
            let offered: Vec<&str> = self
                .blocking(|desk| tools::offered(desk).iter().map(|it| it.name).collect())
                .await?;
            let text = tools::unknown_tool(&request.name, &offered);
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = request.arguments.map(tools::without_wrapper).unwrap_or_default();
        let arguments = Value::Object(arguments);
        let peer = context.peer.clone();
        let answer = match waiting::waiting_call(tool.name, &arguments) {
            Some(call) => {
                waiting::wait_with_progress(Arc::clone(&self.desk), call, arguments, context)
                    .await?
            }
            None => {
                let call = move |desk: &ToolContext| {
                    revive_watcher(&desk.project);
                    run_tool(tool, desk, arguments)
                };
                self.blocking(call).await?
            }
        };
        // A blackboard that came after the session began brings its tools along.
        if self.blocking(|desk| desk.offers_others(tools::offered(desk).len())).await? {
            let _ = peer.notify_tool_list_changed().await;
        }
        let answer = self.blocking(move |desk| in_words_of_tools(desk, answer)).await?;
        Ok(match answer {
            Ok(value) => CallToolResult::structured(value),
            Err(trouble) => {
                let text = vec![ContentBlock::text(trouble.to_string())];
                let mut failed = CallToolResult::error(text);
                failed.structured_content = trouble.details;
                failed
            }
        })
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("ensemble", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions(&self.desk))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.blocking(|desk| {
            let offered = tools::offered(desk);
            desk.offers_others(offered.len());
            offered.into_iter().map(|tool| describe(tool, desk)).collect()
        });
        Ok(ListToolsResult::with_all_items(tools.await?))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.answer_call(request, context).await.map(Into::into)
    }

    /// Requests that the protocol's types cannot read: of a method that is served it is the parameters that are wrong.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if method == CallToolRequestMethod::VALUE {
            let called = self.answer_call(read_call(request.params)?, context).await?;
            return serde_json::to_value(called).map(CustomResult::new).map_err(internal);
        }
        match SERVED.contains(&method.as_str()) {
            true => Err(ErrorData::invalid_params(format!("{method}: cannot read `params`"), None)),
            false => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = self.blocking(resources::list).await?.map_err(internal)?;
        Ok(ListResourcesResult::with_all_items(all))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri;
        check_followed(&uri)?;
        self.end(&uri);
        let is_over = Arc::new(AtomicBool::new(false));
        let (flag, uris) = (Arc::clone(&is_over), vec![uri.clone()]);
        let desk = Arc::clone(&self.desk);
        let opened = tokio::task::spawn_blocking(move || resources::follow(desk, uris, flag));
        let mut changes = opened.await.map_err(internal)?;
        let mut all = locked(&self.subscribed);
        all.insert(uri, Arc::clone(&is_over));
        tokio::spawn(async move {
            while let Some(uri) = changes.recv().await {
                let updated = ResourceUpdatedNotificationParam::new(uri);
                let is_told = context.peer.notify_resource_updated(updated).await.is_ok();
                if !is_told || is_over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        check_followed(&request.uri)?;
        self.end(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        let uris = requested.resource_subscriptions.iter().flatten();
        accepted.resource_subscriptions =
            Some(uris.filter(|uri| resources::is_followed(uri)).cloned().collect());
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let uris = context.accepted().resource_subscriptions.clone().unwrap_or_default();
        let is_over = Arc::new(AtomicBool::new(false));
        let (flag, desk) = (Arc::clone(&is_over), Arc::clone(&self.desk));
        let opened = tokio::task::spawn_blocking(move || resources::follow(desk, uris, flag));
        let mut changes = opened.await.map_err(internal)?;
        while !context.request_context().ct.is_cancelled() {
            // The pause bounds how late a cancellation is seen.
            let Ok(change) = tokio::time::timeout(CANCELLED_WITHIN, changes.recv()).await else {
                continue;
            };
            let Some(uri) = change else { break };
            if context.sink().notify_resource_updated(uri).await.is_err() {
                break;
            }
        }
        is_over.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        let found = self.blocking(move |desk| resources::read(desk, &uri)).await?;
        let Some((mime, text)) = found.map_err(internal)? else {
            let text = format!("no resource `{}`: resources/list has them", request.uri);
            return Err(ErrorData::resource_not_found(text, None));
        };
        let contents = ResourceContents::text(text, request.uri).with_mime_type(mime);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

/// Reads a call that some clients write: with its arguments as text.
fn read_call(params: Option<Value>) -> Result<CallToolRequestParams, ErrorData> {
    let refuse = |text: &str| Err(ErrorData::invalid_params(text.to_owned(), None));
    let mut params = params.unwrap_or_default();
    let Some(name) = params["name"].as_str().map(str::to_owned) else {
        return refuse("name: is missing: name a tool; tools/list has them");
    };
    let arguments = match params.get_mut("arguments").map(Value::take) {
        Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or_default(),
        arguments => arguments.unwrap_or_default(),
    };
    match arguments {
        Value::Object(arguments) => Ok(CallToolRequestParams::new(name).with_arguments(arguments)),
        _ => refuse("arguments: pass an object"),
    }
}

/// A client that follows an unknown resource has mistaken its name.
fn check_followed(uri: &str) -> Result<(), ErrorData> {
    match resources::is_followed(uri) {
        true => Ok(()),
        false => {
            let text = format!("no subscription to `{uri}`: there are the inbox and the requests");
            Err(ErrorData::resource_not_found(text, None))
        }
    }
}

fn internal(error: impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn describe(tool: &tools::ToolSpec, desk: &ToolContext) -> Tool {
    let schema = match tools::for_clients((tool.schema)(&|| desk.names())) {
        Value::Object(schema) => schema,
        _ => serde_json::Map::new(),
    };
    let annotations = ToolAnnotations::with_title(tool.title)
        .read_only(tool.is_read_only)
        .destructive(false)
        .open_world(false);
    let described =
        Tool::new(tool.name, tool.description, Arc::new(schema)).with_annotations(annotations);
    match tools::outputs::schema(tool.name) {
        Some(Value::Object(output)) => described.with_raw_output_schema(Arc::new(output)),
        _ => described,
    }
}
