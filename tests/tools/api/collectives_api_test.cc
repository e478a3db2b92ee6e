// Groups and collectives as a program outside the tree sees them.
#include "engine/collectives.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <numeric>

#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/api/expect_error.h"

namespace {

using namespace engine::api;

std::chrono::milliseconds limit() { return test_support::deadline(std::chrono::seconds(20)); }

TEST(ApiVersion, HeadersAndLibraryAgree) {
  EXPECT_EQ(version(), ENGINE_API_VERSION);
  EXPECT_EQ(ENGINE_API_VERSION, ENGINE_API_VERSION_MAJOR * 1'000'000 +
                                    ENGINE_API_VERSION_MINOR * 1'000 + ENGINE_API_VERSION_PATCH);
  const std::string numbers = std::to_string(ENGINE_API_VERSION_MAJOR) + "." +
                              std::to_string(ENGINE_API_VERSION_MINOR) + "." +
                              std::to_string(ENGINE_API_VERSION_PATCH) + " (";
  EXPECT_TRUE(std::string(version_text()).starts_with(numbers)) << version_text();
}

TEST(ApiCollectives, ThreadsReduceGatherScatterAndBroadcast) {
  for (const int ranks : {1, 2, 3})
    run_threads(
        ranks,
        [ranks](Group& group) {
          EXPECT_EQ(group.world_size(), ranks);
          EXPECT_EQ(group.backend(), "inproc");
          Communicator all = group.make_communicator();
          EXPECT_EQ(all.rank(), group.rank());
          const int rank = all.rank(), pairs = ranks * (ranks - 1) / 2;

          std::vector<float> sums{1.0F, static_cast<float>(rank)};
          all.all_reduce(sums);
          EXPECT_EQ(sums,
                    (std::vector<float>{static_cast<float>(ranks), static_cast<float>(pairs)}));
          std::array<std::int64_t, 1> highest{rank};
          all.all_reduce(highest, Reduction::kMax);
          EXPECT_EQ(highest[0], ranks - 1);
          double lowest[1] = {1.0 + rank};
          all.all_reduce(lowest, Reduction::kMin);
          EXPECT_EQ(lowest[0], 1.0);

          EXPECT_EQ(all.all_gather(std::array{rank, 10 * rank}).size(),
                    static_cast<std::size_t>(2 * ranks));
          const std::vector<int> gathered = all.all_gather(std::array{rank, 10 * rank});
          for (int r = 0; r < ranks; ++r) EXPECT_EQ(gathered[2 * r + 1], 10 * r);

          std::vector<int> outgoing(static_cast<std::size_t>(2 * ranks));
          std::iota(outgoing.begin(), outgoing.end(), 100 * rank);
          std::vector<int> incoming(outgoing.size());
          all.all_to_all(std::as_bytes(std::span(outgoing)),
                         std::as_writable_bytes(std::span(incoming)));
          for (int r = 0; r < ranks; ++r) EXPECT_EQ(incoming[2 * r + 1], 100 * r + 2 * rank + 1);

          std::vector<double> values(5);
          std::iota(values.begin(), values.end(), 0.0);
          const std::span<double> part = all.reduce_scatter(values);
          const int first = rank * 5 / ranks;
          EXPECT_EQ(part.size(), static_cast<std::size_t>((rank + 1) * 5 / ranks - first));
          for (std::size_t i = 0; i < part.size(); ++i)
            EXPECT_EQ(part[i], ranks * (first + static_cast<double>(i)));

          std::array<char, 3> word = {'n', 'o', '\0'};
          if (rank == ranks - 1) word = {'o', 'k', '\0'};
          all.broadcast(word, ranks - 1);
          EXPECT_STREQ(word.data(), "ok");
          all.barrier();
        },
        limit());
}

TEST(ApiCollectives, MembersOfAGroupHaveACommunicatorOfTheirOwn) {
  run_threads(
      3,
      [](Group& group) {
        if (group.rank() == 1) return;
        Communicator two = group.make_communicator({0, 2});
        EXPECT_EQ(two.world_size(), 2);
        std::vector<std::int64_t> sum{group.rank()};
        two.all_reduce(sum);
        EXPECT_EQ(sum[0], 2);
      },
      limit());
}

TEST(ApiCollectives, MisuseIsAConfigurationError) {
  run_threads(
      1,
      [](Group& group) {
        Communicator all = group.make_communicator();
        std::array<std::byte, 4> bytes{};
        EXPECT_API_ERROR(all.broadcast(bytes, 1), ConfigurationError, 78,
                         "root is 1, expected 0..0");
        EXPECT_API_ERROR(all.all_gather_bytes(bytes, std::span(bytes).first(3)), ConfigurationError,
                         78, "has 3 bytes, expected 1 x 4 = 4");
        EXPECT_API_ERROR(all.all_to_all(bytes, std::span(bytes).first(3)), ConfigurationError, 78,
                         "all_to_all: input 4 output 3");
      },
      limit());
  EXPECT_API_ERROR(run_threads(0, [](Group&) {}), ConfigurationError, 78, "is 0, expected 1..");
  EXPECT_API_ERROR(Group::join({.rank = 2, .world_size = 2}), ConfigurationError, 78, "2");
  EXPECT_API_ERROR(Group::join({.rank = 0, .world_size = 1, .backend = "gloom"}),
                   ConfigurationError, 78, "gloom");
  EXPECT_API_ERROR(
      Group::join({.rank = 0, .world_size = 1, .timeout = std::chrono::milliseconds(0)}),
      ConfigurationError, 78, "timeout is 0 ms");
}

TEST(ApiCollectives, RanksWhoseCallsDifferAreTold) {
  std::mutex mutex;
  int reported = 0;
  EXPECT_API_ERROR(run_threads(
                       2,
                       [&](Group& group) {
                         Communicator all = group.make_communicator();
                         std::vector<float> values(group.rank() == 0 ? 3 : 4);
                         try {
                           all.all_reduce(values);
                         } catch (const MismatchError&) {
                           const std::lock_guard lock(mutex);
                           ++reported;
                           throw;
                         }
                       },
                       limit()),
                   MismatchError, 76, "4 f32");
  EXPECT_EQ(reported, 2);
}

struct OwnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The other rank receives the reason, and the caller gets what was thrown, as it was.
TEST(ApiCollectives, AFailureOfABodyReachesTheOtherRanksAndTheCaller) {
  std::mutex mutex;
  std::string heard;
  try {
    run_threads(
        2,
        [&](Group& group) {
          if (group.rank() == 1) throw OwnError("no more darts");
          try {
            group.make_communicator().barrier();
          } catch (const PeerError& error) {
            const std::lock_guard lock(mutex);
            heard = error.what();
            throw;
          }
        },
        limit());
    ADD_FAILURE() << "nothing thrown";
  } catch (const OwnError& error) {
    EXPECT_STREQ(error.what(), "no more darts");
  }
  EXPECT_NE(heard.find("no more darts"), std::string::npos) << heard;
}

TEST(ApiCollectives, AbortEndsACallThatWaits) {
  EXPECT_API_ERROR(run_threads(
                       2,
                       [](Group& group) {
                         Communicator all = group.make_communicator();
                         all.abort("enough");
                         all.barrier();
                       },
                       limit()),
                   PeerError, 69, "enough");
}

// Rank 1 as a process of its own; returns what it ends with.
template <class Body>
int with_process(const std::string& meeting, const Body& body) {
  const auto join = [&](int rank) {
    return Group::join({.init_method = "file://" + meeting,
                        .rank = rank,
                        .world_size = 2,
                        .join_timeout = limit(),
                        .timeout = limit()});
  };
  const pid_t child = fork();
  if (child == 0) {
    try {
      {
        Group group = join(1);
        body(group);
      }
      _exit(0);
    } catch (const Error& error) {
      _exit(error.exit_code());
    } catch (...) {
      _exit(1);
    }
  }
  {
    Group group = join(0);
    body(group);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ApiGroup, ProcessesMeetAtAFile) {
  const test_support::TemporaryDirectory folder;
  const int code = with_process(folder / "meeting", [](Group& group) {
    Communicator all = group.make_communicator();
    std::vector<double> sum{1.0 + group.rank()};
    all.all_reduce(sum);
    if (sum[0] != 3.0) throw std::runtime_error("wrong sum");
    group.check();
    group.leave();
  });
  EXPECT_EQ(code, 0);
}

// Waits for one message.
class Arrival {
 public:
  Messages::Done done() {
    return [this](const std::exception_ptr& failure, int rank) { end_.set_value({failure, rank}); };
  }
  int rank() {
    const auto [failure, rank] = end_.get_future().get();
    if (failure) std::rethrow_exception(failure);
    return rank;
  }

 private:
  std::promise<std::pair<std::exception_ptr, int>> end_;
};

std::span<std::byte> bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST(ApiMessages, AreMatchedByRankAndTagAndOrder) {
  const test_support::TemporaryDirectory folder;
  const int code = with_process(folder / "meeting", [](Group& group) {
    Messages messages = group.make_messages();
    constexpr int kLarge = 300'000;
    if (group.rank() == 1) {
      std::vector<int> first{1}, second{2}, large(kLarge, 3), empty;
      std::array<Arrival, 4> sent;
      messages.send(bytes_of(first), 0, 7, limit(), sent[0].done());
      messages.send(bytes_of(large), 0, 8, limit(), sent[1].done());
      messages.send(bytes_of(second), 0, 7, limit(), sent[2].done());
      messages.send(bytes_of(empty), 0, 9, limit(), sent[3].done());
      for (Arrival& one : sent) one.rank();
    } else {
      std::vector<int> first(1), second(1), large(kLarge), empty;
      std::array<Arrival, 4> received;
      messages.receive(bytes_of(large), Messages::kAnyRank, 8, limit(), received[0].done());
      EXPECT_EQ(received[0].rank(), 1);
      EXPECT_EQ(large, std::vector<int>(kLarge, 3));
      messages.receive(bytes_of(first), 1, 7, limit(), received[1].done());
      messages.receive(bytes_of(second), 1, 7, limit(), received[2].done());
      messages.receive(bytes_of(empty), 1, 9, limit(), received[3].done());
      for (int i : {1, 2, 3}) EXPECT_EQ(received[static_cast<std::size_t>(i)].rank(), 1);
      EXPECT_EQ(first[0], 1);
      EXPECT_EQ(second[0], 2);
    }
    group.leave();
  });
  EXPECT_EQ(code, 0);
}

TEST(ApiMessages, WrongSizesAndMissingOnesAreErrors) {
  const test_support::TemporaryDirectory folder;
  const int code = with_process(folder / "meeting", [](Group& group) {
    Messages messages = group.make_messages();
    std::vector<int> values(2);
    Arrival one, other, missing;
    if (group.rank() == 1) {
      messages.send(bytes_of(values), 0, 1, limit(), one.done());
      one.rank();
    } else {
      std::vector<int> longer(3);
      messages.receive(bytes_of(longer), 1, 1, limit(), other.done());
      EXPECT_API_ERROR(other.rank(), MismatchError, 76,
                       "receive of 12 bytes from rank 1: rank 1 sent 8 bytes");
      messages.receive(bytes_of(longer), 1, 2, std::chrono::milliseconds(1), missing.done());
      EXPECT_API_ERROR(missing.rank(), PeerError, 69, "12 bytes rank 1 deadline");
      EXPECT_API_ERROR(messages.send(bytes_of(values), 0, 1, limit(), one.done()),
                       ConfigurationError, 78, "message rank 0 0..1 0");
    }
    group.leave();
  });
  EXPECT_EQ(code, 0);
}

TEST(ApiGroup, ProcessesMeetByTheProgramsOwnStore) {
  const test_support::TemporaryDirectory folder;
  const std::string address = folder / "address";
  const auto joined_sum = [&](int rank) {
    Group group = Group::join({.rank = rank,
                               .world_size = 2,
                               .interface = "127.0.0.1",
                               .secret = std::string(64, 'a'),
                               .encryption = "on",
                               .publish =
                                   [&](const std::string& text) {
                                     std::ofstream(address + ".new") << text;
                                     std::filesystem::rename(address + ".new", address);
                                   },
                               .look_up =
                                   [&] {
                                     while (!std::filesystem::exists(address)) usleep(1000);
                                     std::string text;
                                     std::ifstream(address) >> text;
                                     return text;
                                   },
                               .join_timeout = limit(),
                               .timeout = limit()});
    std::vector<float> sum{1.0F + static_cast<float>(rank)};
    group.make_communicator().all_reduce(sum);
    group.leave();
    return sum[0];
  };
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(joined_sum(1) == 3.0F ? 0 : 1);
    } catch (const std::exception&) {
      _exit(2);
    }
  }
  EXPECT_EQ(joined_sum(0), 3.0F);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_API_ERROR(Group::join({.rank = 0, .look_up = [] { return std::string(); }}),
                   ConfigurationError, 78, "needs publish, look_up, rank and world_size");
  EXPECT_API_ERROR(Group::join({.rank = 0, .world_size = 1, .encryption = "yes"}),
                   ConfigurationError, 78, "encryption \"yes\", auto, on off");
}

TEST(ApiGroup, WhoLetsGoWithoutLeavingIsAFailure) {
  const test_support::TemporaryDirectory folder;
  std::string heard;
  const int code = with_process(folder / "meeting", [&](Group& group) {
    if (group.rank() == 1) return;  // its end is the process's
    try {
      Communicator all = group.make_communicator();
      all.barrier();
      ADD_FAILURE() << "nothing thrown";
    } catch (const PeerError& error) {
      heard = error.what();
    }
  });
  EXPECT_EQ(code, 0);
  EXPECT_NE(heard.find("rank 1"), std::string::npos) << heard;
  EXPECT_NE(heard.find("without leave()"), std::string::npos) << heard;
}

TEST(ApiGroup, JoiningEndsAtTheDeadlineOrWhenItIsCancelled) {
  set_notice_handler([](const std::string&) {});
  const test_support::TemporaryDirectory folder;
  const GroupOptions alone{.init_method = "file://" + (folder / "alone"),
                           .rank = 0,
                           .world_size = 2,
                           .join_timeout = std::chrono::milliseconds(300)};
  EXPECT_API_ERROR(Group::join(alone), PeerError, 69, "1");
  GroupOptions cancelled = alone;
  cancelled.init_method = "file://" + (folder / "cancelled");
  cancelled.join_timeout = limit();
  cancelled.cancelled = [] { return true; };
  EXPECT_API_ERROR(Group::join(cancelled), CancelledError, 69, "");
  cancelled.init_method = "file://" + (folder / "thrown");
  cancelled.cancelled = []() -> bool { throw OwnError("asked in vain"); };
  EXPECT_THROW(Group::join(cancelled), OwnError);
  set_notice_handler({});
}

}  // namespace
