// Implements groups and communicators on top of backends/, with checks for mistakes of the program.
#include "engine/collectives.h"

#include <algorithm>
#include <functional>

#include "backends/backend_error.h"
#include "backends/compose/table/backend_table.h"
#include "backends/identity/identity.h"
#include "backends/reduction.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/socket/messages.h"
#include "io/gpu/cuda_runtime.h"
#include "tools/api/group_impl.h"
#include "tools/api/translated.h"
#include "tools/launch/group/joining_options.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/run/choices/compute_choice.h"

namespace engine::api {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw ConfigurationError(tools::kExitConfiguration, text);
}

backends::ReduceOp op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return backends::ReduceOp::kSum;
    case Reduction::kMax:
      return backends::ReduceOp::kMax;
    case Reduction::kMin:
      return backends::ReduceOp::kMin;
  }
  refuse("no such reduction: " + std::to_string(static_cast<int>(reduction)));
}

backends::DType type_of(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return backends::DType::kF32;
    case ElementType::kF64:
      return backends::DType::kF64;
    case ElementType::kI64:
      return backends::DType::kI64;
    case ElementType::kF16:
      return backends::DType::kF16;
    case ElementType::kBF16:
      return backends::DType::kBF16;
    case ElementType::kU8:
      return backends::DType::kU8;
  }
  refuse("no such element type: " + std::to_string(static_cast<int>(type)));
}

int milliseconds(const char* name, std::chrono::milliseconds time, int least) {
  if (time.count() < least || time.count() > 1'000'000'000)
    refuse(std::string(name) + " is " + std::to_string(time.count()) + " ms, expected " +
           std::to_string(least) + "..1000000000");
  return static_cast<int>(time.count());
}

backends::Encryption encryption_of(const std::string& name) {
  for (const auto choice :
       {backends::Encryption::kAuto, backends::Encryption::kOn, backends::Encryption::kOff})
    if (backends::to_string(choice) == name) return choice;
  refuse("encryption is \"" + name + "\", expected auto, on or off");
}

// Joins by the program's own store: sets the init method and, on rank 0, opens the listener.
void meet_by_store(const GroupOptions& given, backends::GroupOptions& options) {
  if (!given.publish || !given.look_up || !given.rank || !given.world_size)
    refuse("a store of the program's own needs publish, look_up, rank and world_size");
  if (options.rank == 0) {
    const std::string host = given.interface.empty() ? backends::default_address()
                                                     : backends::interface_address(given.interface);
    backends::Socket listener = backends::listen_on({host, 0});
    const std::string address = backends::to_string(backends::local_endpoint(listener.fd()));
    options.init_method = "tcp://" + address;
    call_out([&] { given.publish(address); });
    options.listen.fd = listener.release();
  } else {
    call_out([&] { options.init_method = "tcp://" + given.look_up(); });
  }
}

// Resolves who this rank is: by the options alone if the program has a store.
void identify(const GroupOptions& given, backends::GroupOptions& options) {
  if (given.publish || given.look_up) {
    options.rank = given.rank.value_or(0);
    options.world_size = given.world_size.value_or(1);
    options.local_rank = given.local_rank.value_or(options.rank);
    options.job.id = given.job_id;
    return;
  }
  const backends::Identity identity = backends::resolve_identity({.init_method = given.init_method,
                                                                  .rank = given.rank,
                                                                  .world_size = given.world_size,
                                                                  .local_rank = given.local_rank,
                                                                  .job_id = given.job_id},
                                                                 backends::process_environment());
  tools::take_identity(identity, options);
}

backends::GroupOptions join_options(const GroupOptions& given) {
  const backends::LocalStage local_stage = backends::parse_local_stage(given.local_stage);
  backends::check_backend(given.backend);
  backends::GroupOptions options;
  identify(given, options);
  options.links.encryption = encryption_of(given.encryption);
  options.backend = given.backend;
  options.local_stage = local_stage;
  options.listen.interface = given.interface;
  options.job.secret = given.secret;
  options.job.build = ENGINE_VERSION " " ENGINE_COMMIT;
  options.job.settings = given.settings;
  options.rendezvous_timeout_ms = milliseconds("join_timeout", given.join_timeout, 1);
  options.timeout_ms = milliseconds("timeout", given.timeout, 1);
  options.heartbeat_ms = milliseconds("heartbeat", given.heartbeat, 1);
  options.stall.after_ms = milliseconds("stall_after", given.stall_after, 0);
  options.notice = tools::print_notice;
  if (given.cancelled)
    options.cancelled = [asked = given.cancelled] {
      bool answer = false;
      call_out([&] { answer = asked(); });
      return answer;
    };
  if (given.publish || given.look_up) meet_by_store(given, options);
  return options;
}

}  // namespace

struct Communicator::Impl {
  std::shared_ptr<Group::Impl> group;  // outlives the following members
  std::unique_ptr<backends::Communicator> communicator;
  std::uint32_t calls = 0;

  void run(std::uint16_t call_purpose, const backends::ControlWord& word, void* data,
           const void* input = nullptr) {
    communicator->run({word.with_purpose(call_purpose), data, input});
  }
};

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->communicator->rank(); }
int Communicator::world_size() const { return impl_->communicator->world_size(); }
std::string Communicator::backend() const { return std::string(impl_->communicator->name()); }

namespace {

void require_membership(const Group::Impl& group, const char* call) {
  if (group.left)
    refuse(std::string(call) +
           ": this rank has left the group, whose communicators and messages "
           "can no longer be used");
}

// Checks the memory of a call of this rank, which is still a member.
void require_memory(const Group::Impl& group, const char* call, const void* data, std::size_t count,
                    const char* unit) {
  require_membership(group, call);
  if (data == nullptr && count > 0)
    refuse(std::string(call) + ": the memory is nullptr, expected " + std::to_string(count) + " " +
           unit);
}

void require_memory(const Group::Impl& group, const char* call, std::span<const std::byte> bytes) {
  require_memory(group, call, bytes.data(), bytes.size(), "bytes");
}

}  // namespace

void Communicator::all_reduce(void* data, std::size_t count, ElementType type,
                              Reduction reduction) {
  require_memory(*impl_->group, "all_reduce", data, count, "elements");
  translated([&] {
    impl_->run(purpose,
               reduction_word(backends::Operation::kAllReduce, ++impl_->calls, count, type_of(type),
                              op_of(reduction)),
               data);
  });
}

std::pair<std::size_t, std::size_t> Communicator::reduce_scatter(void* data, std::size_t count,
                                                                 ElementType type,
                                                                 Reduction reduction) {
  require_memory(*impl_->group, "reduce_scatter", data, count, "elements");
  return translated([&] {
    impl_->run(purpose,
               reduction_word(backends::Operation::kReduceScatter, ++impl_->calls, count,
                              type_of(type), op_of(reduction)),
               data);
    const backends::ElementRange own = backends::slice_of(count, rank(), world_size());
    return std::pair(own.begin, own.end);
  });
}

void Communicator::broadcast_bytes(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= world_size())
    refuse("broadcast: root is " + std::to_string(root) + ", expected 0.." +
           std::to_string(world_size() - 1));
  require_memory(*impl_->group, "broadcast", bytes);
  translated([&] {
    impl_->run(purpose,
               transfer_word(backends::Operation::kBroadcast, ++impl_->calls, bytes.size(), root),
               bytes.data());
  });
}

void Communicator::all_gather_bytes(std::span<const std::byte> own, std::span<std::byte> all) {
  const std::size_t wanted = own.size() * static_cast<std::size_t>(world_size());
  if (all.size() != wanted)
    refuse("all_gather: the output has " + std::to_string(all.size()) + " bytes, expected " +
           std::to_string(world_size()) + " x " + std::to_string(own.size()) + " = " +
           std::to_string(wanted));
  require_memory(*impl_->group, "all_gather", own);
  require_memory(*impl_->group, "all_gather", all);
  translated([&] {
    impl_->run(purpose, transfer_word(backends::Operation::kAllGather, ++impl_->calls, own.size()),
               all.data(), own.data());
  });
}

void Communicator::all_to_all(std::span<const std::byte> own, std::span<std::byte> all) {
  const auto ranks = static_cast<std::size_t>(world_size());
  if (own.size() % ranks != 0 || all.size() != own.size())
    refuse("all_to_all: the input has " + std::to_string(own.size()) + " bytes and the output " +
           std::to_string(all.size()) + ", expected equal numbers, in " + std::to_string(ranks) +
           " equal parts");
  require_memory(*impl_->group, "all_to_all", own);
  require_memory(*impl_->group, "all_to_all", all);
  const std::less<const std::byte*> before;
  if (before(own.data(), all.data() + all.size()) && before(all.data(), own.data() + own.size()))
    refuse("all_to_all: the input and the output overlap, expected separate memory");
  translated([&] {
    impl_->run(purpose,
               transfer_word(backends::Operation::kAllToAll, ++impl_->calls, own.size() / ranks),
               all.data(), own.data());
  });
}

void Communicator::barrier() {
  require_membership(*impl_->group, "barrier");
  translated([&] {
    impl_->run(purpose, transfer_word(backends::Operation::kBarrier, ++impl_->calls, 0), nullptr);
  });
}

void Communicator::abort(const std::string& reason) noexcept { impl_->communicator->abort(reason); }

struct Messages::Impl {
  std::shared_ptr<Group::Impl> group;  // outlives the following members
  std::unique_ptr<backends::Messages> messages;
};

Messages::Messages(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Messages::Messages(Messages&&) noexcept = default;
Messages& Messages::operator=(Messages&&) noexcept = default;
Messages::~Messages() = default;

namespace {

backends::Message message_of(std::byte* data, std::size_t bytes, int rank, std::uint64_t tag,
                             std::chrono::milliseconds timeout, Messages::Done done,
                             std::uint8_t kind) {
  return {.peer = rank,
          .tag = tag,
          .data = data,
          .bytes = bytes,
          .kind = kind,
          .deadline = base::deadline_in(
              std::chrono::milliseconds(milliseconds("the timeout of a message", timeout, 0))),
          .done = [done = std::move(done)](const std::exception_ptr& failure, int peer) {
            try {
              translated([&] {
                if (failure) std::rethrow_exception(failure);
              });
            } catch (...) {
              return done(std::current_exception(), peer);
            }
            done(nullptr, peer);
          }};
}

}  // namespace

void Messages::send(std::span<const std::byte> bytes, int rank, std::uint64_t tag,
                    std::chrono::milliseconds timeout, Done done, std::uint8_t kind) {
  require_memory(*impl_->group, "send", bytes);
  translated([&] {
    // Sending only reads the memory.
    auto* data = const_cast<std::byte*>(bytes.data());
    impl_->messages->send(
        message_of(data, bytes.size(), rank, tag, timeout, std::move(done), kind));
  });
}

void Messages::receive(std::span<std::byte> bytes, int rank, std::uint64_t tag,
                       std::chrono::milliseconds timeout, Done done, std::uint8_t kind) {
  require_memory(*impl_->group, "receive", bytes);
  translated([&] {
    impl_->messages->receive(
        message_of(bytes.data(), bytes.size(), rank, tag, timeout, std::move(done), kind));
  });
}

void Messages::abort(const std::string& reason) noexcept { impl_->messages->abort(reason); }

Group Group::join(const GroupOptions& options) {
  return translated([&] {
    const backends::GroupOptions joining = join_options(options);
    if (joining.world_size > 1) base::cuda::load_kernels_at_start();
    return Group(std::make_shared<Impl>(
        Impl{.group = backends::join_group(joining), .cancelled = options.cancelled}));
  });
}

Group::Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  if (this == &other) return *this;
  if (impl_) abandon("its program has taken another group in its place");
  impl_ = std::move(other.impl_);
  return *this;
}
Group::~Group() {
  if (impl_) abandon("its program has let the group go without leave()");
}

int Group::rank() const { return impl_->group->rank(); }
int Group::world_size() const { return impl_->group->world_size(); }
std::string Group::backend() const { return impl_->group->backend(); }
std::string Group::backend_reason() const { return impl_->group->backend_reason(); }

namespace {

void require_members(const backends::Group& group, const std::vector<int>& members) {
  if (members.empty()) return;
  std::string text;
  bool ascending = true;
  for (std::size_t i = 0; i < members.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(members[i]);
    ascending = ascending && (i == 0 || members[i] > members[i - 1]);
  }
  if (!ascending || members.front() < 0 || members.back() >= group.world_size())
    refuse("the members are {" + text + "}, expected ranks of 0.." +
           std::to_string(group.world_size() - 1) + " in ascending order");
  if (std::ranges::find(members, group.rank()) == members.end())
    refuse("the members are {" + text + "}, expected this rank, " + std::to_string(group.rank()) +
           ", among them");
}

}  // namespace

Communicator Group::make_communicator(const std::vector<int>& members) {
  require_membership(*impl_, "make_communicator");
  require_members(*impl_->group, members);
  return translated([&] {
    return Communicator(std::make_unique<Communicator::Impl>(Communicator::Impl{
        .group = impl_, .communicator = tools::host_communicator(*impl_->group, members)}));
  });
}

Messages Group::make_messages(const std::vector<int>& members) {
  require_membership(*impl_, "make_messages");
  require_members(*impl_->group, members);
  return translated([&] {
    return Messages(std::make_unique<Messages::Impl>(
        Messages::Impl{.group = impl_, .messages = impl_->group->make_messages(members)}));
  });
}

void Group::set_activity(const std::string& text) noexcept { impl_->group->set_activity(text); }
void Group::check() const {
  translated([&] { impl_->group->check(); });
}

void Group::leave() {
  impl_->left = true;
  translated([&] { impl_->group->leave(impl_->cancelled); });
  impl_->ended = true;
}

void Group::abandon(const std::string& why) noexcept {
  if (!impl_->ended) impl_->group->abandon(why);
  impl_->ended = true;
}

namespace {

// Leaves the group, or abandons it with the reason. An error that another rank's failure has caused
// must look like one to run_worker_threads(), which searches for the first cause.
void run_body(Group& group, const std::function<void(Group&)>& body) {
  try {
    body(group);
    group.leave();
  } catch (const PeerError& error) {
    group.abandon(error.what());
    throw backends::PeerError(error.what());
  } catch (const std::exception& error) {
    group.abandon(error.what());
    throw CallbackFailure(std::current_exception());
  } catch (...) {
    group.abandon("a callback has failed");
    throw CallbackFailure(std::current_exception());
  }
}

}  // namespace

void run_threads(int ranks, const std::function<void(Group&)>& body,
                 std::chrono::milliseconds timeout) {
  constexpr int kMost = 1024;
  if (ranks < 1 || ranks > kMost)
    refuse("the number of ranks is " + std::to_string(ranks) + ", expected 1.." +
           std::to_string(kMost));
  translated([&] {
    if (ranks > 1) base::cuda::load_kernels_at_start();
    tools::run_inproc_ranks(
        ranks, milliseconds("timeout", timeout, 1), [&](std::unique_ptr<backends::Group> own) {
          Group group(std::make_shared<Group::Impl>(Group::Impl{.group = std::move(own)}));
          run_body(group, body);
          return 0;
        });
  });
}

}  // namespace engine::api
