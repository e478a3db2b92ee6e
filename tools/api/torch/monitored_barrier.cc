// Implements the barrier that names the ranks that do not come.
#include <ATen/ATen.h>

#include <deque>
#include <string>

#include "tools/api/torch/message_batch.h"
#include "tools/api/torch/tensor_calls.h"

namespace engine::pytorch {
namespace {

constexpr std::uint64_t kArrived = 2ULL << 32, kReleased = 3ULL << 32;

void pass(MessageBatch& batch, api::Messages& messages, bool sends, int rank, std::uint64_t tag,
          std::chrono::milliseconds timeout) {
  api::Messages::Done done = batch.expect();
  try {
    if (sends) {
      messages.send({}, rank, tag, timeout, std::move(done));
    } else {
      messages.receive({}, rank, tag, timeout, std::move(done));
    }
  } catch (...) {
    batch.forget();
    throw;
  }
}

bool arrives(MessageBatch& batch, std::string& why) {
  try {
    batch.wait();
    return true;
  } catch (const api::Error& error) {
    why = error.what();
    return false;
  }
}

}  // namespace

void TensorCalls::monitored_barrier(std::chrono::milliseconds timeout, bool wait_for_all) {
  if (size() == 1) return;
  const std::uint64_t number = monitored_barriers_++ & 0xffffffff;
  if (rank() != 0) {
    MessageBatch batch;
    pass(batch, *messages_, true, 0, kArrived + number, timeout);
    pass(batch, *messages_, false, 0, kReleased + number, timeout);
    std::string why;
    TORCH_CHECK(arrives(batch, why), "Rank ", rank(),
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0. Please check rank 0 logs for faulty rank. (",
                why, ")");
    return;
  }
  std::deque<MessageBatch> arrivals;
  for (int r = 1; r < size(); ++r)
    pass(arrivals.emplace_back(), *messages_, false, r, kArrived + number, timeout);
  std::string missing, why;
  int count = 0;
  for (int r = 1; r < size(); ++r) {
    if (arrives(arrivals[static_cast<std::size_t>(r - 1)], why)) continue;
    missing += (count++ == 0 ? "" : ", ") + std::to_string(r);
    if (!wait_for_all) break;
  }
  TORCH_CHECK(count == 0, "[Rank 0]: ", count == 1 ? "Rank " : "Ranks ", missing,
              " failed to pass monitoredBarrier in ", timeout.count(), " ms (", why, ")");
  MessageBatch releases;
  for (int r = 1; r < size(); ++r) pass(releases, *messages_, true, r, kReleased + number, timeout);
  releases.wait();
}

}  // namespace engine::pytorch
