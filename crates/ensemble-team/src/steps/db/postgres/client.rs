//! One connection: how it begins, and statements with their rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Cell, DbError, DbResult, Value};
use super::error::PgError;
use super::options::PostgresOptions;
use super::scram::{self, Exchange};
use super::stream::Stream;
use super::wire::{Fields, Message, Wire, malformed};

/// Version 3.0 of the protocol.
const PROTOCOL: u32 = 3 << 16;
/// How much later than the server itself a client gives a statement up.
const GRACE: Duration = Duration::from_secs(2);
/// Types of values, by their numbers in the catalogue of each server.
const INT8: u32 = 20;
const TEXT: u32 = 25;
/// Types that are read as numbers: `bool`, and whole numbers.
const BOOL: u32 = 16;
const NUMBERS: [u32; 4] = [INT8, 21, 23, 1700];

/// A connection that has begun.
pub(super) struct Client {
    wire: Wire,
    patience: Duration,
    /// The server's process for this connection.
    process: u32,
    /// Statements that the server has prepared, with their names.
    prepared: HashMap<String, String>,
    /// Number of statements that were sent to be prepared.
    named: u32,
    /// Number of notifications from other connections so far.
    pub(super) notified: i64,
    pub(super) listens: bool,
    /// Whether a transaction has begun and not ended.
    pub(super) is_in_transaction: bool,
    on_statement: Option<fn(&str)>,
}

/// A row: its cells as texts.
pub(in crate::steps) struct PgRow {
    body: Vec<u8>,
    /// Start and end of each cell in the body; `None` for none.
    cells: Vec<Option<(usize, usize)>>,
    types: Arc<[u32]>,
}

impl PgRow {
    pub(in crate::steps) fn cell(&self, column: usize) -> DbResult<Cell<'_>> {
        let missing = || DbError::damaged(column, "is missing");
        let Some((start, end)) = *self.cells.get(column).ok_or_else(missing)? else {
            return Ok(Cell::Null);
        };
        let text = std::str::from_utf8(&self.body[start..end]);
        let text = text.map_err(|error| DbError::damaged(column, error))?;
        match self.types.get(column) {
            Some(&BOOL) => Ok(Cell::Integer(i64::from(text == "t"))),
            Some(kind) if NUMBERS.contains(kind) => {
                let number = text.parse().map_err(|error| DbError::damaged(column, error))?;
                Ok(Cell::Integer(number))
            }
            _ => Ok(Cell::Text(text)),
        }
    }
}

impl Client {
    pub(super) fn connect(
        options: &PostgresOptions,
        on_statement: Option<fn(&str)>,
    ) -> Result<Self, PgError> {
        let stream = Stream::connect(options)?;
        let mut client = Self {
            wire: Wire::new(stream),
            patience: options.patience + GRACE,
            process: 0,
            prepared: HashMap::new(),
            named: 0,
            notified: 0,
            listens: false,
            is_in_transaction: false,
            on_statement,
        };
        client.begin(options)?;
        Ok(client)
    }

    /// Says who asks and for what, and proves it.
    fn begin(&mut self, options: &PostgresOptions) -> Result<(), PgError> {
        let PostgresOptions { user, database, schema, patience, .. } = options;
        let patience = patience.as_millis().max(1);
        // The server ends what a host that has vanished has left open.
        let (limit, idle) = (patience.to_string(), (patience * 4).to_string());
        let search_path = format!("\"{schema}\"");
        let parameters = [
            ("user", user.as_str()),
            ("database", database),
            ("application_name", "ensemble"),
            ("client_encoding", "UTF8"),
            ("search_path", &search_path),
            ("statement_timeout", &limit),
            ("lock_timeout", &limit),
            ("idle_in_transaction_session_timeout", &idle),
        ];
        let mut body = Vec::new();
        for (key, value) in parameters {
            body.extend_from_slice(key.as_bytes());
            body.push(0);
            body.extend_from_slice(value.as_bytes());
            body.push(0);
        }
        self.wire.put(None, &[&PROTOCOL.to_be_bytes(), &body, &[0]]);
        self.wire.send()?;
        let mut exchange = None;
        loop {
            let message = self.wire.receive(self.patience)?;
            match message.kind {
                b'R' => self.prove(&message, options, &mut exchange)?,
                b'K' => self.process = message.fields().long()?,
                b'E' => return Err(refused(&message)),
                b'Z' => return Ok(()),
                // Parameters, notices, and what the server does not support of the protocol.
                _ => {}
            }
        }
    }

    fn prove(
        &mut self,
        message: &Message,
        options: &PostgresOptions,
        exchange: &mut Option<Exchange>,
    ) -> Result<(), PgError> {
        let unusable = PgError::Unusable;
        let mut fields = message.fields();
        match (fields.long()?, &mut *exchange) {
            (0, _) => Ok(()),
            (3, _) if self.wire.stream().is_private() => {
                let password = options.password().map_err(unusable)?;
                self.wire.put(Some(b'p'), &[password.as_bytes(), &[0]]);
                self.wire.send()
            }
            (3, _) => {
                Err(unusable("the server asks for the password without encryption".to_owned()))
            }
            (10, none) => {
                let mut offers = false;
                while fields.left() > 1 {
                    offers |= fields.text()? == scram::MECHANISM;
                }
                if !offers {
                    return Err(unusable(format!(
                        "the server does not offer {}",
                        scram::MECHANISM
                    )));
                }
                let begun = none.insert(Exchange::begin().map_err(unusable)?).first();
                let length = u32::try_from(begun.len()).unwrap_or(u32::MAX).to_be_bytes();
                let mechanism = scram::MECHANISM.as_bytes();
                self.wire.put(Some(b'p'), &[mechanism, &[0], &length, begun.as_bytes()]);
                self.wire.send()
            }
            (11, Some(exchange)) => {
                let password = options.password().map_err(unusable)?;
                let answer = exchange.answer(fields.rest()?, &password).map_err(unusable)?;
                self.wire.put(Some(b'p'), &[answer.as_bytes()]);
                self.wire.send()
            }
            (12, Some(exchange)) => exchange.check(fields.rest()?).map_err(unusable),
            (5, _) => Err(unusable(format!(
                "the server asks for an MD5 password: set `password_encryption` to scram-sha-256 and the password anew, for {}",
                scram::MECHANISM
            ))),
            _ => {
                Err(unusable("the server asks for a proof that Ensemble does not have".to_owned()))
            }
        }
    }

    /// Runs statements without values and without rows.
    pub(super) fn batch(&mut self, statements: &str) -> Result<(), PgError> {
        self.tell(statements);
        self.wire.put(Some(b'Q'), &[statements.as_bytes(), &[0]]);
        self.wire.send()?;
        self.answers().map(drop)
    }

    /// Runs a statement and reads its rows.
    pub(super) fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<PgRow>, PgError> {
        self.tell(statement);
        let known = self.prepared.get(statement).cloned();
        let name = known.clone().unwrap_or_else(|| format!("s{}", self.named));
        if known.is_none() {
            self.named += 1;
            let mut types = Vec::new();
            for value in values {
                let kind = match value {
                    Value::Integer(_) => INT8,
                    Value::Text(_) => TEXT,
                };
                types.extend(kind.to_be_bytes());
            }
            let (text, count) = (statement.replace('?', "$"), short(values.len()));
            self.wire
                .put(Some(b'P'), &[name.as_bytes(), &[0], text.as_bytes(), &[0], &count, &types]);
        }
        let bound = bound(values);
        self.wire.put(Some(b'B'), &[&[0], name.as_bytes(), &[0, 0, 0], &bound, &[0, 0]]);
        self.wire.put(Some(b'D'), &[b"P\0"]);
        self.wire.put(Some(b'E'), &[&[0, 0, 0, 0, 0]]);
        self.wire.put(Some(b'S'), &[]);
        self.wire.send()?;
        let rows = self.answers()?;
        if known.is_none() {
            self.prepared.insert(statement.to_owned(), name);
        }
        Ok(rows)
    }

    fn tell(&self, statement: &str) {
        if let Some(told) = self.on_statement {
            told(statement);
        }
    }

    /// Everything up to the server being ready for the next statement.
    fn answers(&mut self) -> Result<Vec<PgRow>, PgError> {
        let (mut rows, mut types, mut failure): (_, Arc<[u32]>, _) =
            (Vec::new(), Arc::new([]), None);
        loop {
            let message = self.wire.receive(self.patience)?;
            match message.kind {
                b'T' => types = types_of(&message)?,
                b'D' => rows.push(row(message, &types)?),
                b'E' => {
                    let refused = refused(&message);
                    // After these the server closes the connection and is never ready again.
                    if refused.ends_connection() {
                        return Err(refused);
                    }
                    failure = Some(refused);
                }
                b'Z' => return failure.map_or(Ok(rows), Err),
                b'A' => self.hear(&message)?,
                _ => {}
            }
        }
    }

    /// Waits until another connection has changed something, or so long. Returns whether one has.
    pub(super) fn wait(&mut self, patience: Duration) -> Result<bool, PgError> {
        let (before, deadline) = (self.notified, Instant::now() + patience);
        while self.notified == before {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.wire.receive_news(left)? {
                Some(message) if message.kind == b'A' => self.hear(&message)?,
                Some(message) if message.kind == b'E' => return Err(refused(&message)),
                None if left.is_zero() => break,
                Some(_) | None => {}
            }
        }
        Ok(self.notified != before)
    }

    fn hear(&mut self, message: &Message) -> Result<(), PgError> {
        let is_own = message.fields().long()? == self.process;
        self.notified += i64::from(!is_own);
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Otherwise the server logs a lost connection.
        self.wire.put(Some(b'X'), &[]);
        let _ = self.wire.send();
    }
}

fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

/// Values as texts. PostgreSQL stores no zero byte in a text.
fn bound(values: &[Value<'_>]) -> Vec<u8> {
    let mut bound = short(values.len()).to_vec();
    for value in values {
        let text = match value {
            Value::Integer(number) => number.map(|number| number.to_string()),
            Value::Text(text) => text.as_deref().map(|text| text.replace('\0', "\u{fffd}")),
        };
        match text {
            Some(text) => {
                bound.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
                bound.extend_from_slice(text.as_bytes());
            }
            None => bound.extend((-1_i32).to_be_bytes()),
        }
    }
    bound
}

/// The types of a result's columns.
fn types_of(message: &Message) -> Result<Arc<[u32]>, PgError> {
    let mut fields = message.fields();
    let mut types = Vec::new();
    for _ in 0..fields.short()? {
        fields.text()?;
        // The table and the column that it is from.
        fields.bytes(6)?;
        types.push(fields.long()?);
        fields.bytes(8)?;
    }
    Ok(types.into())
}

fn row(message: Message, types: &Arc<[u32]>) -> Result<PgRow, PgError> {
    let mut cells = Vec::with_capacity(types.len());
    let mut fields = message.fields();
    for _ in 0..fields.short()? {
        let length = fields.long()?;
        let start = message.body.len() - fields.left();
        cells.push(match usize::try_from(length) {
            _ if length == u32::MAX => None,
            Ok(length) => {
                fields.bytes(length)?;
                Some((start, start + length))
            }
            Err(_) => return Err(malformed()),
        });
    }
    Ok(PgRow { body: message.body, cells, types: Arc::clone(types) })
}

/// The error that a message tells of.
fn refused(message: &Message) -> PgError {
    let (mut code, mut text) = (String::new(), String::new());
    let mut fields: Fields<'_> = message.fields();
    while let Ok([kind]) = fields.bytes(1)
        && let Ok(value) = fields.text()
    {
        match kind {
            b'C' => value.clone_into(&mut code),
            b'M' => value.clone_into(&mut text),
            _ => {}
        }
    }
    PgError::Refused { code, message: text }
}
