//! How many bytes a topic has on disk, by the DescribeLogDirs request, which librdkafka does not offer. Plain connections only:
//! over TLS or SASL the figure is left blank.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::{
    ApiKey, DescribeLogDirsRequest, DescribeLogDirsResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

/// The oldest version that brokers still serve.
const VERSION: i16 = 1;
const CORRELATION: i32 = 1;
/// Answers list a few numbers per partition; a longer one is not an answer.
const LONGEST_ANSWER: usize = 16 << 20;

/// Bytes of a topic's replicas on one broker.
pub(super) fn topic_bytes_on(
    host: &str,
    port: u16,
    topic: &str,
    partitions: i32,
    timeout: Duration,
) -> io::Result<u64> {
    let mut stream = connect(host, port, timeout)?;
    stream.write_all(&request(topic, partitions)?)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > LONGEST_ANSWER {
        return Err(invalid(format!("an answer of {length} bytes is announced")));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    total(Bytes::from(answer), topic)
}

fn invalid(message: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_string())
}

fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = invalid(format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn request(topic: &str, partitions: i32) -> io::Result<Bytes> {
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let wanted = DescribableLogDirTopic::default().with_topic(name).with_partitions((0..partitions).collect());
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::DescribeLogDirs as i16)
        .with_request_api_version(VERSION)
        .with_correlation_id(CORRELATION)
        .with_client_id(Some(StrBytes::from_static_str("reelbench-admin")));
    let mut body = BytesMut::new();
    header.encode(&mut body, ApiKey::DescribeLogDirs.request_header_version(VERSION)).map_err(invalid)?;
    DescribeLogDirsRequest::default().with_topics(Some(vec![wanted])).encode(&mut body, VERSION).map_err(invalid)?;
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_i32(body.len() as i32);
    frame.put(body);
    Ok(frame.freeze())
}

fn total(mut answer: Bytes, topic: &str) -> io::Result<u64> {
    ResponseHeader::decode(&mut answer, ApiKey::DescribeLogDirs.response_header_version(VERSION)).map_err(invalid)?;
    let response = DescribeLogDirsResponse::decode(&mut answer, VERSION).map_err(invalid)?;
    if answer.has_remaining() {
        return Err(invalid("the answer is longer than its content"));
    }
    let mut bytes = 0;
    for folder in &response.results {
        if folder.error_code != 0 {
            return Err(invalid(format!("folder {} answers error {}", folder.log_dir.as_str(), folder.error_code)));
        }
        let ours = folder.topics.iter().filter(|found| found.name.as_str() == topic);
        let kept = ours.flat_map(|found| &found.partitions).filter(|partition| !partition.is_future_key);
        bytes += kept.map(|partition| partition.partition_size.max(0) as u64).sum::<u64>();
    }
    Ok(bytes)
}
