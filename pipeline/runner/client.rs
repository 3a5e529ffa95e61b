//! A small JSON client over HTTP/1.1 keep-alive connections: what runner and instances say to each other.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::Refusal;

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{url}: no answer within {timeout:?}")]
    Timeout { url: String, timeout: Duration },
    #[error("{url}: {reason}")]
    Transport { url: String, reason: String },
    #[error("{url}: refused with {status}: {reason}")]
    Refused { url: String, status: u16, reason: String },
    #[error("{url}: the answer is not what this version expects: {reason}")]
    Decode { url: String, reason: String },
}

#[derive(Clone)]
pub struct Client {
    http: HyperClient<HttpConnector, Full<Bytes>>,
}

impl Default for Client {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Client { http: HyperClient::builder(TokioExecutor::new()).build(connector) }
    }
}

impl Client {
    pub async fn get<R: DeserializeOwned>(&self, url: &str, timeout: Duration) -> Result<R, ClientError> {
        self.call(Method::GET, url, Vec::new(), timeout).await
    }

    pub async fn post<B: Serialize, R: DeserializeOwned>(
        &self,
        url: &str,
        body: &B,
        timeout: Duration,
    ) -> Result<R, ClientError> {
        let body = serde_json::to_vec(body)
            .map_err(|error| ClientError::Decode { url: url.to_owned(), reason: error.to_string() })?;
        self.call(Method::POST, url, body, timeout).await
    }

    async fn call<R: DeserializeOwned>(
        &self,
        method: Method,
        url: &str,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<R, ClientError> {
        let transport = |reason: String| ClientError::Transport { url: url.to_owned(), reason };
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| transport(error.to_string()))?;
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| transport(error.to_string()))?;
            let status = response.status();
            let bytes = response.into_body().collect().await.map_err(|error| transport(error.to_string()))?.to_bytes();
            Ok((status, bytes))
        };
        let (status, bytes) = tokio::time::timeout(timeout, exchange)
            .await
            .map_err(|_| ClientError::Timeout { url: url.to_owned(), timeout })??;
        decode(url, status, &bytes)
    }
}

fn decode<R: DeserializeOwned>(url: &str, status: StatusCode, bytes: &[u8]) -> Result<R, ClientError> {
    if !status.is_success() {
        let reason = serde_json::from_slice::<Refusal>(bytes)
            .map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), |refusal| refusal.error);
        return Err(ClientError::Refused { url: url.to_owned(), status: status.as_u16(), reason });
    }
    let bytes = if bytes.is_empty() { b"null" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| ClientError::Decode { url: url.to_owned(), reason: error.to_string() })
}
