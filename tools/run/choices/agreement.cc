// Gathers texts and digests from all ranks, and compares them.
#include "tools/run/choices/agreement.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <span>
#include <vector>

#include "backends/backend_error.h"
#include "backends/store/protocol/handshake.h"
#include "engine/core/error.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "engine/train/replicas/replica_sync.h"
#include "io/base/digests/digest.h"
#include "io/base/text/text_parts.h"
#include "io/data/sources/data_digest.h"
#include "tools/launch/group/rank_exchange.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

std::string rank_text(const backends::Group& group, std::size_t rank) {
  const backends::PeerInfo& peer = group.peers().at(rank);
  return backends::member_text(peer.rank, peer.host, peer.pid);
}

// A rank that ends first looks like a failure to ranks that have not received everything yet, so no
// rank leaves before all know the reason. Afterwards a failure of the exchange itself does not
// matter.
void wait_until_all_know(backends::Communicator& control) noexcept {
  try {
    control.barrier();
  } catch (const std::exception&) {
  }
}

std::string as_text(const backends::Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    text += text.empty() ? "" : "\n";
    text.append(name).append("\t").append(value);
  }
  return text;
}

backends::Settings from_text(const std::string& text) {
  backends::Settings settings;
  for (const std::string& line : base::split_text(text, '\n')) {
    const std::size_t end = line.find('\t');
    settings.emplace_back(line.substr(0, end), line.substr(end + 1));
  }
  return settings;
}

// Returns the first rank whose value differs from rank 0's, or the number of ranks if all are
// equal.
template <class Value>
std::size_t first_other(const std::vector<Value>& of_ranks) {
  return static_cast<std::size_t>(
      std::ranges::find_if(of_ranks, [&](const Value& v) { return v != of_ranks.front(); }) -
      of_ranks.begin());
}

}  // namespace

void run_on_all_ranks(const backends::Group& group, backends::Communicator& control,
                      const std::function<void()>& work) {
  if (group.world_size() == 1) return work();
  std::exception_ptr failure;
  std::string own;  // exit code, blank, text
  try {
    work();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    own = std::to_string(exit_code_of(error)) + " " + text_of(error);
  }
  std::vector<std::string> all;
  try {
    all = gather_texts(control, own);
  } catch (const backends::Error&) {
    if (failure) std::rethrow_exception(failure);
    throw;
  }
  const auto failed = std::ranges::find_if(all, [](const auto& text) { return !text.empty(); });
  if (failed == all.end()) return;
  wait_until_all_know(control);
  if (failure) std::rethrow_exception(failure);
  int code = kExitInternal;
  const std::size_t blank = failed->find(' ');
  std::from_chars(failed->data(), failed->data() + blank, code);
  throw engine::RemoteError(code, rank_text(group, static_cast<std::size_t>(failed - all.begin())) +
                                      ": " + failed->substr(blank + 1));
}

void require_equal(const backends::Group& group, backends::Communicator& control,
                   const backends::Settings& own, const std::string& what) {
  if (group.world_size() == 1) return;
  const std::string text = as_text(own);
  const base::Digest digest = base::digest_of(std::as_bytes(std::span(text)));
  std::vector<base::Digest> digests(static_cast<std::size_t>(group.world_size()));
  control.all_gather(&digest, sizeof digest, digests.data());
  const std::size_t other = first_other(digests);
  if (other == digests.size()) return;
  const std::vector<std::string> all = gather_texts(control, text);
  wait_until_all_know(control);
  throw engine::DesyncError(
      what + ": " +
      backends::settings_difference(from_text(all.front()), rank_text(group, 0),
                                    from_text(all.at(other)), rank_text(group, other)));
}

backends::Settings extent_of(const io::DatasetSplits& data) {
  std::string shape;
  for (const std::int64_t size : data.train.shape())
    shape += (shape.empty() ? "" : " x ") + std::to_string(size);
  return {{"training samples", std::to_string(data.train.size())},
          {"test samples", std::to_string(data.test.size())},
          {"shape of a sample", shape},
          {"classes", std::to_string(data.train.classes())}};
}

backends::Settings content_of(const io::DatasetSplits& data, const std::string& digest) {
  const auto digest_text = [](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values.data(), values.size()));
    return "digest " + base::hex_text(base::digest_of(bytes));
  };
  const auto labels_text = [](const io::Dataset& set) {
    base::StreamDigest digest_of_labels;
    std::visit([&](const auto& kind) { kind.add_to(digest_of_labels); }, set.labels);
    return "digest " + base::hex_text(digest_of_labels.value());
  };
  const io::Dataset &train = data.train, &test = data.test;
  const std::vector<float> scale =
      std::visit([](const auto& kind) { return kind.statistics(); }, train.samples);
  return {{"vocabulary", digest_text(train.vocabulary())},
          {"training labels", labels_text(train)},
          {"training data", "digest " + digest},
          {"mean and deviation", digest_text(scale)},
          {"test labels", labels_text(test)},
          {"test data", "digest " + io::data_digest(test, data.coding.get()).text}};
}

std::string instruction_set_notice(const backends::Group& group, backends::Communicator& control,
                                   engine::Products products) {
  if (group.world_size() == 1) return "";
  const std::vector<std::string> all =
      gather_texts(control, std::string(engine::ops::to_string(engine::ops::isa_of(products))));
  const std::size_t other = first_other(all);
  if (other == all.size()) return "";
  return "instruction sets differ: " + rank_text(group, 0) + " computes with " + all.front() +
         ", " + rank_text(group, other) + " with " + all[other] +
         "; replicas stay equal bit by bit, but the numbers are not those of a run with one "
         "instruction set (ENGINE_ISA chooses it)";
}

}  // namespace tools
