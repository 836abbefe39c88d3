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

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourceContents, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;

mod desk;
mod http;
pub(crate) mod install;
mod resources;
mod stdio;
mod tools;

pub(crate) use desk::Desk;
pub(crate) use http::{fresh_token, runtime, serve as serve_http};
pub(crate) use stdio::serve as serve_stdio;
pub(crate) use tools::schemas;

/// Calls one tool, without a client.
#[cfg(feature = "fuzzing")]
pub(crate) fn call(desk: &Desk, name: &str, arguments: Value) -> Result<Value, String> {
    let tool = tools::all().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| format!("no tool `{name}`"))?;
    (tool.call)(desk, arguments).map_err(|trouble| trouble.to_string())
}

/// The server's instructions for a model.
const INSTRUCTIONS: &str = "Mail, steps and requests of a team of agents. Your mail: fetch_inbox \
    shows it, acknowledge_message takes a message, complete_message says that its work is done. A \
    message of type `step` is a step to do; report it with submit_step_completion and in no other way.";

/// One client's view of the project.
#[derive(Clone)]
pub(crate) struct Server {
    desk: Arc<Desk>,
}

impl Server {
    pub(crate) const fn new(desk: Arc<Desk>) -> Self {
        Self { desk }
    }

    /// Runs something that blocks, so that other calls go on meanwhile.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Desk) -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let desk = Arc::clone(&self.desk);
        let done = tokio::task::spawn_blocking(move || work(&desk)).await;
        done.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("ensemble", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.blocking(|desk| tools::all().map(|tool| describe(tool, desk)).collect());
        Ok(ListToolsResult::with_all_items(tools.await?))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = tools::all().find(|tool| tool.name == request.name) else {
            let names: Vec<&str> = tools::all().map(|tool| tool.name).collect();
            let text = format!("no tool `{}`: there are {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let answer = self.blocking(move |desk| (tool.call)(desk, arguments)).await?;
        let result = match answer {
            Ok(value) => CallToolResult::structured(value),
            Err(trouble) => CallToolResult::error(vec![ContentBlock::text(trouble.to_string())]),
        };
        Ok(result.into())
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

fn internal(trouble: tools::Trouble) -> ErrorData {
    ErrorData::internal_error(trouble.to_string(), None)
}

/// A tool as clients see it.
fn describe(tool: &tools::ToolSpec, desk: &Desk) -> Tool {
    let schema = match (tool.schema)(desk) {
        Value::Object(schema) => schema,
        _ => serde_json::Map::new(),
    };
    let annotations = ToolAnnotations::with_title(tool.title)
        .read_only(tool.is_read_only)
        .destructive(false)
        .open_world(false);
    Tool::new(tool.name, tool.description, Arc::new(schema)).with_annotations(annotations)
}
