// The collectives of the emulated NCCL: piece after piece through shared memory, folded in the
// order of ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "io/base/numbers/half.h"
#include "tests/emulator/libraries/nccl_on_cpu.h"
#include "tests/emulator/simt/simt.h"

namespace nccl_on_cpu {
namespace {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename T>
T combine(T a, T b, ncclRedOp_t op) {
  if (op == ncclSum) {
    if constexpr (std::is_same_v<T, std::int64_t>)
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    return static_cast<T>(a + b);
  }
  if constexpr (std::is_floating_point_v<T>)
    return op == ncclMax ? std::fmax(a, b) : std::fmin(a, b);
  return op == ncclMax ? std::max(a, b) : std::min(a, b);
}

// out[i] = fold over ranks of element first + i of the piece in the slots.
template <typename T>
void fold(const State& s, std::size_t first, std::size_t count, ncclRedOp_t op, void* out) {
  for (std::size_t i = 0; i < count; ++i) {
    T sum{}, next{};
    for (int r = 0; r < s.ranks; ++r) {
      std::memcpy(&next, s.slot(r).data + (first + i) * sizeof(T), sizeof(T));
      sum = r == 0 ? next : combine(sum, next, op);
    }
    std::memcpy(static_cast<std::byte*>(out) + i * sizeof(T), &sum, sizeof(T));
  }
}

template <typename Half>
void fold_sixteen(const State& s, std::size_t first, std::size_t count, ncclRedOp_t op, void* out) {
  Half sum{}, next{};
  for (std::size_t i = 0; i < count; ++i) {
    for (int r = 0; r < s.ranks; ++r) {
      std::memcpy(&next, s.slot(r).data + (first + i) * 2, 2);
      sum = r == 0 ? next : base::from_float<Half>(combine(to_float(sum), to_float(next), op));
    }
    std::memcpy(static_cast<std::byte*>(out) + i * 2, &sum, 2);
  }
}

void fold_piece(const State& s, const Call& call, std::size_t first, std::size_t count, void* out) {
  switch (call.type) {
    case ncclFloat32:
      return fold<float>(s, first, count, call.op, out);
    case ncclFloat64:
      return fold<double>(s, first, count, call.op, out);
    case ncclInt64:
      return fold<std::int64_t>(s, first, count, call.op, out);
    case ncclUint8:
      return fold<std::uint8_t>(s, first, count, call.op, out);
    case ncclFloat16:
      return fold_sixteen<base::f16>(s, first, count, call.op, out);
    default:
      return fold_sixteen<base::bf16>(s, first, count, call.op, out);
  }
}

}  // namespace

std::size_t Running::part() const {
  const auto parts = call_.kind == Kind::kAllToAll ? static_cast<std::size_t>(s_->ranks) : 1;
  return std::min(call_.count - done_, kPiece / parts / size_of(call_.type));
}

bool Running::step() {
  if (s_->aborted) return true;
  if (!begin() || stuck_) return false;
  for (; done_ < call_.count; done_ += part()) {
    if (!exchange()) return false;
  }
  s_->running = nullptr;
  return true;
}

bool Running::begin() {
  if (begun_) return true;
  if (s_->running != nullptr || s_->stage == State::kJoining) return false;
  s_->running = this;
  begun_ = true;
  const long number = s_->calls++;
  stuck_ =
      number == s_->fault.number && (s_->fault.kind == "never" || s_->fault.kind == "async_error");
  if (stuck_ && s_->fault.kind == "async_error") s_->failed = true;
  return true;
}

// One piece of every rank. Each waits until its last piece has been read by all, and then for all
// the others' new ones.
bool Running::exchange() {
  const std::uint64_t piece = s_->pieces + 1;
  Slot& own = s_->slot(s_->rank);
  if (own.wrote < piece) {
    if (!s_->all([&](const Slot& other) { return other.read >= piece - 1; })) return false;
    own.call = call_;
    give(own.data);
    own.wrote = piece;
  }
  if (!s_->all([&](const Slot& other) { return other.wrote >= piece; })) return false;
  if (!s_->all([&](const Slot& other) { return other.call == call_; })) {
    stuck_ = true;
    return false;
  }
  take();
  s_->pieces = piece;
  own.read = piece;
  return true;
}

void Running::give(std::byte* to) const {
  simt::open_device_memory();
  const std::size_t element = size_of(call_.type), bytes = part() * element;
  const int parts = call_.kind == Kind::kAllToAll ? s_->ranks : 1;
  for (int r = 0; r < parts; ++r)
    std::memcpy(to + static_cast<std::size_t>(r) * bytes,
                in_ + (static_cast<std::size_t>(r) * call_.count + done_) * element, bytes);
}

void Running::take() {
  simt::open_device_memory();
  const std::size_t element = size_of(call_.type), bytes = part() * element, at = done_ * element;
  switch (call_.kind) {
    case Kind::kAllReduce:
      return fold_piece(*s_, call_, 0, part(), out_ + at);
    case Kind::kBroadcast:
      std::memcpy(out_ + at, s_->slot(call_.root).data, bytes);
      return;
    case Kind::kAllGather:
      for (int r = 0; r < s_->ranks; ++r)
        std::memcpy(out_ + static_cast<std::size_t>(r) * call_.count * element + at,
                    s_->slot(r).data, bytes);
      return;
    case Kind::kAllToAll:
      for (int r = 0; r < s_->ranks; ++r)
        std::memcpy(out_ + static_cast<std::size_t>(r) * call_.count * element + at,
                    s_->slot(r).data + static_cast<std::size_t>(s_->rank) * bytes, bytes);
      return;
    case Kind::kReduceScatter: {
      const std::size_t share = call_.count / static_cast<std::size_t>(s_->ranks),
                        begin = share * static_cast<std::size_t>(s_->rank);
      const std::size_t first = std::max(done_, begin),
                        last = std::min(done_ + part(), begin + share);
      if (first < last)
        fold_piece(*s_, call_, first - done_, last - first, out_ + (first - begin) * element);
    }
  }
}

}  // namespace nccl_on_cpu
