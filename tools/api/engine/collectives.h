// Groups of ranks and their collectives, on host memory.
//
// A rank is a process, or a thread of a process. All ranks of a group make the same calls in the
// same order with the same counts; ranks that differ get a MismatchError that names both calls,
// before any payload is used. Every call blocks until its result is available, and throws PeerError
// if another rank fails or the deadline passes. All ranks get the same bits, in every run.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/errors.h"

namespace engine::api {

enum class Reduction : std::uint8_t { kSum, kMax, kMin };

// kF16 and kBF16: 16-bit numbers as stored; sums are rounded once. Those of kI64, kU8 wrap around.
enum class ElementType : std::uint8_t { kF32, kF64, kI64, kF16, kBF16, kU8 };

template <class T>
concept Number = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int64_t>;

template <Number T>
inline constexpr ElementType kElementTypeOf = std::same_as<T, float>    ? ElementType::kF32
                                              : std::same_as<T, double> ? ElementType::kF64
                                                                        : ElementType::kI64;

// Numbers are vectors, arrays and spans of numbers; PlainValues hold any type that can be copied as
// bytes.
template <class Values>
concept Numbers =
    std::ranges::contiguous_range<Values> && Number<std::ranges::range_value_t<Values>>;
template <class Values>
concept PlainValues = std::ranges::contiguous_range<Values> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<Values>>;

// Connects this rank with the other members. Move-only. One caller at a time; threads of a rank
// that communicate at the same time need a communicator each. After a failure only destruction is
// allowed. Memory that is nullptr is a ConfigurationError unless its size is 0.
class ENGINE_API Communicator {
 public:
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const;  // among the communicator's members
  int world_size() const;
  std::string backend() const;  // e.g. "shm", "gloo", "shm+gloo", "inproc"

  // Replaces each value by its reduction over all ranks.
  template <Numbers Values>
  void all_reduce(Values&& values, Reduction reduction = Reduction::kSum) {
    const std::span own(values);
    all_reduce(own.data(), own.size(), kElementTypeOf<typename decltype(own)::value_type>,
               reduction);
  }
  void all_reduce(void* data, std::size_t count, ElementType type, Reduction reduction);

  // Gives rank r the values [r * count / world_size, (r + 1) * count / world_size) of the
  // reduction, in place, and returns that part. The rest is undefined.
  template <Numbers Values>
  auto reduce_scatter(Values&& values, Reduction reduction = Reduction::kSum) {
    const std::span own(values);
    const auto [first, last] = reduce_scatter(
        own.data(), own.size(), kElementTypeOf<typename decltype(own)::value_type>, reduction);
    return own.subspan(first, last - first);
  }
  // Returns the index of the part's first element and of the one after its last.
  std::pair<std::size_t, std::size_t> reduce_scatter(void* data, std::size_t count,
                                                     ElementType type, Reduction reduction);

  // Sends the values of `root` to all ranks.
  template <PlainValues Values>
  void broadcast(Values&& values, int root) {
    broadcast_bytes(std::as_writable_bytes(std::span(values)), root);
  }
  void broadcast_bytes(std::span<std::byte> bytes, int root);

  // Returns the values of all ranks in rank order; every rank provides equally many.
  template <PlainValues Values>
  auto all_gather(const Values& values) {
    const std::span own(values);
    std::vector<std::ranges::range_value_t<Values>> all(own.size() *
                                                        static_cast<std::size_t>(world_size()));
    all_gather_bytes(std::as_bytes(own), std::as_writable_bytes(std::span(all)));
    return all;
  }
  // `all` must have world_size() times as many bytes as `own`, else ConfigurationError is thrown.
  void all_gather_bytes(std::span<const std::byte> own, std::span<std::byte> all);

  // Sends the r-th of world_size() equal parts of `own` to rank r, and stores what the ranks sent
  // to this one in `all`, in rank order. Both have equally many bytes, else ConfigurationError is
  // thrown, and do not overlap.
  void all_to_all(std::span<const std::byte> own, std::span<std::byte> all);

  // Returns when all ranks have called it.
  void barrier();
  std::uint16_t purpose = 0;  // of the next calls; another one elsewhere is a MismatchError

  // Makes this rank's current and future calls throw PeerError with `reason` soon. Any thread.
  void abort(const std::string& reason) noexcept;

  struct ENGINE_HIDDEN Impl;  // here and below: internal to the library
  explicit Communicator(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Messages between two ranks, outside the order of the collectives and over connections of their
// own. Move-only; the other members may be called from any thread.
class ENGINE_API Messages {
 public:
  static constexpr int kAnyRank = -1;
  // Called once, from a thread of the library, when the memory of a message is no longer used: with
  // an exception of errors.h or nullptr, and the rank at the other end. Must not throw.
  using Done = std::function<void(const std::exception_ptr& failure, int rank)>;

  Messages(Messages&&) noexcept;
  Messages& operator=(Messages&&) noexcept;
  // Waits until messages that were passed to send() are sent, at most until their timeouts;
  // receptions that are still pending fail.
  ~Messages();

  // Return at once; the memory must stay valid until `done` is called. Messages from one rank with
  // the same tag are received in the order in which they were sent, by the receptions in the order
  // in which these were requested. `rank`: among the members; kAnyRank: any, to receive only. A
  // message of another size or kind than its reception is a MismatchError.
  void send(std::span<const std::byte> bytes, int rank, std::uint64_t tag,
            std::chrono::milliseconds timeout, Done done, std::uint8_t kind = 0);
  void receive(std::span<std::byte> bytes, int rank, std::uint64_t tag,
               std::chrono::milliseconds timeout, Done done, std::uint8_t kind = 0);

  // Makes this rank's current and future messages fail with `reason` soon.
  void abort(const std::string& reason) noexcept;

  struct ENGINE_HIDDEN Impl;
  explicit Messages(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// The parameters by which this process finds the other ranks. Fields that are not set come from the
// launcher's variables (RANK, WORLD_SIZE, MASTER_ADDR, SLURM_PROCID, OMPI_COMM_WORLD_RANK ...), as
// described in docs/launching.md.
struct GroupOptions {
  std::string init_method = "env://";  // or tcp://HOST:PORT, file:///PATH
  std::optional<int> rank = {}, world_size = {}, local_rank = {};
  std::string backend = "auto";      // or a name that `engine env` lists; no plug-ins
  std::string local_stage = "auto";  // shared memory among the ranks of a host: auto, shm, off
  std::string interface = {};        // network interface; "": the one that routes to rank 0
  std::string job_id = {};           // distinguishes jobs that share a host
  std::string secret = {};           // hexadecimal, 32 digits or more; "": see docs/SECURITY.md
  std::string encryption = "auto";   // of connections between ranks: auto, on, off
  // In place of init_method, if the ranks share a store of the program's own; needs rank and
  // world_size. Rank 0 listens on a free port of `interface` ("": the default route's address) and
  // passes "HOST:PORT" to `publish`; `look_up` returns that text to the other ranks.
  std::function<void(const std::string& address)> publish = {};
  std::function<std::string()> look_up = {};
  // Names and values that must be equal on all ranks, else all of them throw MismatchError. At most
  // 64 KiB.
  std::vector<std::pair<std::string, std::string>> settings = {};
  std::chrono::milliseconds join_timeout{300'000};  // limit until all ranks have joined
  std::chrono::milliseconds timeout{600'000};       // limit of a collective
  std::chrono::milliseconds heartbeat{1'000};       // a rank that misses three is considered dead
  // Time before a notice names the waiting ranks; 0: never.
  std::chrono::milliseconds stall_after{10'000};
  // Called while the group forms, from any thread; returning true cancels that.
  std::function<bool()> cancelled = {};
};

// One rank's membership in a group. Move-only. All members may be called from any thread.
class ENGINE_API Group {
 public:
  // Joins the group of processes. Blocks until all ranks have joined; throws PeerError that names
  // the missing ones at the deadline. Sets CUDA_MODULE_LOADING=EAGER if there are several ranks and
  // the variable is not set, so call it before anything uses CUDA (docs/gpu.md).
  static Group join(const GroupOptions& options = {});

  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  // Destruction without leave() is a failure for the other ranks.
  ~Group();

  int rank() const;
  int world_size() const;
  std::string backend() const;         // the chosen one
  std::string backend_reason() const;  // e.g. "auto: all ranks are on one host"

  // Collective over `members`: ranks of this group, ascending, with this one; empty: all of them.
  // The communicator may outlive the Group object, but not leave().
  Communicator make_communicator(const std::vector<int>& members = {});

  // Collective over `members` as above, which are two or more processes, not threads.
  Messages make_messages(const std::vector<int>& members = {});

  // Sets this rank's activity, which the other ranks' messages name if it dies.
  void set_activity(const std::string& text) noexcept;
  // Throws the first known failure of another rank.
  void check() const;

  // Ends the membership in order. Waits for the other ranks, so that their failures are detected,
  // at most GroupOptions::timeout. Later calls throw ConfigurationError.
  void leave();
  // Ends the membership at once: the other ranks fail and report `why`.
  void abandon(const std::string& why) noexcept;

  struct ENGINE_HIDDEN Impl;
  explicit Group(std::shared_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// Runs body(group) in `ranks` threads of this process, which are the ranks of a group, and waits
// for all. Each leaves when its body returns. If a body throws, the other ranks fail, and the first
// exception is rethrown unchanged. `timeout` as in GroupOptions.
ENGINE_API void run_threads(int ranks, const std::function<void(Group&)>& body,
                            std::chrono::milliseconds timeout = std::chrono::minutes(10));

}  // namespace engine::api
