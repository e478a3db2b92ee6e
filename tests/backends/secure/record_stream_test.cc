// Streams of records over a pair of sockets: any sizes of parts, full buffers, changed bytes.
#include "backends/secure/record_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "io/base/files/descriptor.h"
#include "tests/support/expect_contains.h"

namespace backends {
namespace {

const LinkKeys kForth{LinkCipher::kChaCha20Poly1305, std::string(32, 'a'), std::string(32, 'b')};
const LinkKeys kBack{LinkCipher::kChaCha20Poly1305, std::string(32, 'b'), std::string(32, 'a')};

struct Ends {
  base::Descriptor first, second;
  Ends() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    first = base::Descriptor(ends[0]);
    second = base::Descriptor(ends[1]);
  }
};

std::string random_text(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// The parts of a text from `done` on, with bounds that do not depend on `done`.
std::vector<iovec> parts_from(std::string& text, const std::vector<std::size_t>& sizes,
                              std::size_t done, std::size_t most) {
  std::vector<iovec> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; begin < text.size() && parts.size() < most; ++i) {
    const std::size_t end = std::min(begin + sizes[i % sizes.size()], text.size());
    if (end > done) {
      const std::size_t from = std::max(begin, done);
      parts.push_back({text.data() + from, end - from});
    }
    begin = end;
  }
  return parts;
}

bool is_later(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK); }

// Sends and receives alternately, each in its own parts, until all has arrived.
std::string carried(std::string text, const LinkKeys& sender, const LinkKeys& receiver,
                    const std::vector<std::size_t>& sent_in,
                    const std::vector<std::size_t>& received_in) {
  const Ends ends;
  RecordStream from(ends.first.fd(), sender), to(ends.second.fd(), receiver);
  std::string arrived(text.size(), '\0');
  std::size_t sent = 0, received = 0;
  while (received < text.size()) {
    if (sent < text.size()) {
      std::vector<iovec> parts = parts_from(text, sent_in, sent, 4);
      const ssize_t n = from.send(parts);
      if (n < 0 && !is_later(n)) return from.error_text(errno);
      if (n > 0) sent += static_cast<std::size_t>(n);
    }
    std::vector<iovec> parts = parts_from(arrived, received_in, received, 2);
    const ssize_t n = to.receive(parts);
    if (n == 0 || (n < 0 && !is_later(n))) return to.error_text(errno);
    if (n > 0) received += static_cast<std::size_t>(n);
  }
  EXPECT_EQ(sent, text.size());
  return arrived;
}

TEST(RecordStream, AnyPartsArriveAsTheyWereSent) {
  const std::string text = random_text(1'500'000, 1);
  const std::vector<std::vector<std::size_t>> cuts{{1'000'000}, {40, 65536},  {1, 2, 3, 70'000},
                                                   {65536},     {65537, 100}, {200'000, 32}};
  for (const auto& sent_in : cuts) {
    for (const auto& received_in : cuts) {
      EXPECT_TRUE(carried(text, kForth, kBack, sent_in, received_in) == text)
          << sent_in.front() << " and " << received_in.front();
    }
  }
  EXPECT_TRUE(carried(text, {}, {}, cuts[1], cuts[2]) == text) << "plain";
}

// Sends each text as a record, makes `change` on the way, and returns the receiver's report.
template <typename Change>
std::string outcome_of(const std::vector<std::string>& texts, const Change& change) {
  const Ends ends, wire;
  RecordStream sender(wire.first.fd(), kForth), receiver(ends.second.fd(), kBack);
  std::vector<std::string> records;
  for (std::string text : texts) {
    iovec part{text.data(), text.size()};
    EXPECT_EQ(sender.send({&part, 1}), static_cast<ssize_t>(text.size()));
    std::string record(1 << 20, '\0');
    const ssize_t n = recv(wire.second.fd(), record.data(), record.size(), 0);
    record.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    records.push_back(record);
  }
  change(records);
  for (const std::string& record : records)
    EXPECT_EQ(send(ends.first.fd(), record.data(), record.size(), 0),
              static_cast<ssize_t>(record.size()));
  shutdown(ends.first.fd(), SHUT_WR);
  std::string arrived(1 << 20, '\0');
  for (std::size_t done = 0;;) {
    iovec room{arrived.data() + done, arrived.size() - done};
    const ssize_t n = receiver.receive({&room, 1});
    if (n == 0) return "ended after " + std::to_string(done);
    if (n < 0) {
      const int error = errno;
      EXPECT_EQ(receiver.receive({&room, 1}), -1) << "once wrong, always wrong";
      return receiver.error_text(error);
    }
    done += static_cast<std::size_t>(n);
  }
}

std::string wrong_record(int number) {
  return "carries wrong data: record " + std::to_string(number) +
         " was changed, repeated or moved on the way, or one before it is missing";
}

TEST(RecordStream, EveryChangedByteOfARecordIsNoticed) {
  const std::vector<std::string> texts{"gradient of layer1.weight"};
  EXPECT_EQ(outcome_of(texts, [](auto&) {}), "ended after 25");
  for (std::size_t at = 0; at < texts[0].size() + RecordCipher::kOverheadBytes; ++at) {
    EXPECT_EQ(outcome_of(texts, [&](auto& records) { records[0].at(at) ^= 0x10; }), wrong_record(0))
        << "byte " << at;
  }
}

TEST(RecordStream, SwappedRepeatedDroppedAndInsertedRecordsAreNoticed) {
  const std::vector<std::string> texts{"one", "three", "two"};
  EXPECT_EQ(outcome_of(texts, [](auto&) {}), "ended after 11");
  EXPECT_EQ(outcome_of(texts, [](auto& r) { std::swap(r[1], r[2]); }), wrong_record(1));
  EXPECT_EQ(outcome_of(texts, [](auto& r) { r.insert(r.begin(), r[0]); }), wrong_record(1));
  EXPECT_EQ(outcome_of(texts, [](auto& r) { r.erase(r.begin() + 1); }), wrong_record(1));
  EXPECT_EQ(outcome_of(texts, [](auto& r) { r.insert(r.begin(), "plain text, no record"); }),
            wrong_record(0));
}

// The text of a record that is cut is not used; the end of the connection is reported.
TEST(RecordStream, ACutRecordGivesNoText) {
  const std::vector<std::string> texts{"first", "second"};
  for (std::size_t left = 0; left < 6 + RecordCipher::kOverheadBytes; ++left)
    EXPECT_EQ(outcome_of(texts, [&](auto& r) { r[1].resize(left); }), "ended after 5") << left;
}

TEST(RecordStream, APlainStreamReportsTheSystemsErrors) {
  const RecordStream stream(-1, {});
  EXPECT_CONTAINS(stream.error_text(ECONNRESET), "broke: ");
}

}  // namespace
}  // namespace backends
