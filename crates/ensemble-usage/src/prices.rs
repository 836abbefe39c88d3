//! The prices of tokens: data, by the names of models.

use std::path::Path;

use serde::Deserialize;

use super::Tokens;
use ensemble_core::message::yaml;
use ensemble_core::{AreaError, Result};

const BUILT_IN: &str = include_str!("prices.yaml");
/// Tokens for which a price is stated.
const PER: f64 = 1_000_000.0;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    pub as_of: String,
    models: Vec<Price>,
}

/// Price of a model, in US dollars for a million tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The model's name. It is also the price of its dated versions, `-latest` and variants in brackets.
    pub model: String,
    /// Of tokens that the model reads.
    pub input: f64,
    /// Of tokens that it writes.
    pub output: f64,
    /// Of tokens read from the cache; else as `input`.
    pub cache_read: Option<f64>,
    /// Of tokens written to the cache for minutes; else as `input`.
    pub cache_write: Option<f64>,
    /// Of tokens written to the cache for an hour; else as `cache_write`.
    pub cache_write_hour: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    #[error("the prices of `{model}` are not amounts of money")]
    NoAmount { model: String },
}

impl AreaError for PriceError {}

impl Price {
    pub fn cost_usd(&self, tokens: Tokens) -> f64 {
        let write = self.cache_write.unwrap_or(self.input);
        let parts = [
            (tokens.input, self.input),
            (tokens.output, self.output),
            (tokens.cache_read, self.cache_read.unwrap_or(self.input)),
            (tokens.cache_write, write),
            (tokens.cache_write_hour, self.cache_write_hour.unwrap_or(write)),
        ];
        #[allow(clippy::cast_precision_loss, reason = "below 2^53 tokens")]
        parts.iter().map(|(tokens, price)| *tokens as f64 / PER * price).sum()
    }

    fn check(&self) -> Result<()> {
        let rest = [self.cache_read, self.cache_write, self.cache_write_hour];
        let all = [Some(self.input), Some(self.output)].into_iter().chain(rest);
        if all.flatten().all(|price| price.is_finite() && price >= 0.0) {
            return Ok(());
        }
        Err(PriceError::NoAmount { model: self.model.clone() }.into())
    }
}

impl Prices {
    /// The built-in list.
    ///
    /// # Panics
    /// Never: a test reads the list.
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN, Path::new("prices.yaml")).expect("the built-in prices are valid")
    }

    /// Reads a list. `path` names it in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let prices: Self = yaml::parse(text, path)?;
        prices.models.iter().try_for_each(Price::check)?;
        Ok(prices)
    }

    /// These prices, with those of another list before them.
    pub fn overridden_by(mut self, other: Self) -> Self {
        self.models.retain(|price| other.models.iter().all(|new| new.model != price.model));
        self.models.extend(other.models);
        self
    }

    /// The price of a model. A provider before its name, as in `vendor/model`, is left out.
    pub fn of(&self, model: &str) -> Option<&Price> {
        let name = model.rsplit('/').next().unwrap_or(model);
        let fits = |price: &&Price| {
            price.model == model || name.strip_prefix(&*price.model).is_some_and(is_version)
        };
        self.models.iter().find(fits)
    }
}

/// Whether the rest of a name after a model's name means the same model.
fn is_version(rest: &str) -> bool {
    let is_date = rest.strip_prefix(['-', '@']).is_some_and(|date| {
        date.len() >= 8 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    });
    rest.is_empty() || is_date || rest == "-latest" || rest.starts_with('[')
}
