//! A bare connection: sends exactly the request a test wants, in the version it wants.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{FetchRequest, ProduceRequest, RequestHeader, ResponseHeader, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType};

pub struct Raw {
    stream: TcpStream,
}

/// A whole request frame, with its length.
pub fn frame<R: Request>(version: i16, request: &R) -> Vec<u8> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(7)
        .with_client_id(Some(StrBytes::from_static_str("raw")));
    let mut body = BytesMut::new();
    header.encode(&mut body, R::header_version(version)).unwrap();
    request.encode(&mut body, version).unwrap();
    [&(body.len() as i32).to_be_bytes()[..], &body].concat()
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        Raw { stream }
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next response without its length; an error when the broker closed the connection.
    pub fn receive(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut response = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut response)?;
        Ok(Bytes::from(response))
    }

    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(&frame(version, request)).unwrap();
        let mut response = self.receive().unwrap();
        let header = ResponseHeader::decode(&mut response, R::Response::header_version(version)).unwrap();
        assert_eq!(header.correlation_id, 7);
        let body = R::Response::decode(&mut response, version).unwrap();
        assert!(response.is_empty(), "{} bytes behind the response", response.len());
        body
    }

    /// Produce one batch; the answer for its partition.
    pub fn produce(&mut self, topic: &str, partition: i32, batch: &Bytes) -> PartitionProduceResponse {
        let response = self.call(7, &produce_request(topic, partition, batch, -1));
        response.responses[0].partition_responses[0].clone()
    }

    pub fn fetch(&mut self, topic: &str, partition: i32, offset: i64, max_bytes: i32) -> PartitionData {
        let response = self.call(11, &fetch_request(topic, partition, offset, max_bytes, 0));
        response.responses[0].partitions[0].clone()
    }
}

pub fn name(text: &str) -> TopicName {
    TopicName(StrBytes::from_string(text.to_owned()))
}

pub fn produce_request(topic: &str, partition: i32, batch: &Bytes, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.clone()));
    let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(1_000).with_topic_data(vec![topic])
}

pub fn fetch_request(topic: &str, partition: i32, offset: i64, max_bytes: i32, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(max_bytes);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 26)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

/// Producer id, epoch and first sequence of a batch.
#[derive(Clone, Copy)]
pub struct From {
    pub producer: i64,
    pub epoch: i16,
    pub sequence: i32,
}

/// A producer without idempotence.
pub const ANYONE: From = From { producer: -1, epoch: -1, sequence: -1 };

/// A batch made by an encoder that is not the broker's code: `count` records of `bytes` each, a millisecond apart.
pub fn batch(from: From, count: i32, bytes: usize, first_timestamp_ms: i64) -> Bytes {
    let record = |position: i32| Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: from.producer,
        producer_epoch: from.epoch,
        timestamp_type: TimestampType::Creation,
        offset: i64::from(position),
        sequence: from.sequence + position,
        timestamp: first_timestamp_ms + i64::from(position),
        key: None,
        value: Some(Bytes::from(vec![position as u8; bytes])),
        headers: Default::default(),
    };
    let records: Vec<Record> = (0..count).map(record).collect();
    let mut encoded = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    RecordBatchEncoder::encode(&mut encoded, records.iter(), &options).unwrap();
    encoded.freeze()
}
