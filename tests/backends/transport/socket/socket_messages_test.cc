// Messages between two ranks, beyond what the shared library's tests show: what another rank says
// that no rank of this program would.
#include "backends/transport/socket/socket_messages.h"

#include <gtest/gtest.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "backends/transport/socket/socket_mesh.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/link_job.h"
#include "tests/support/expect_contains.h"

namespace {

using link_job::Job;

// Rank 10 waits for another message of rank 11, which would have to be stored first.
TEST(SocketMessages, AMessageLargerThanAllMemoryEndsItsConnectionAlone) {
  constexpr std::uint64_t kTag = 7, kBytes = std::uint64_t{1} << 54;
  Job job;
  std::promise<void> received;
  const std::future<void> is_received = received.get_future();
  const auto errors = group_harness::outcomes(2, [&](int rank) {
    const backends::BackendContext context = job.context(rank, 2);
    if (rank == 1) {
      backends::SocketMesh mesh(context);
      std::array<std::uint64_t, 2> header{kTag, kBytes};
      iovec part{header.data(), sizeof header};
      EXPECT_EQ(mesh.link(0, 0).send(std::span(&part, 1)), static_cast<ssize_t>(sizeof header));
      is_received.wait();
      return;
    }
    const auto messages = backends::make_socket_messages(context, std::chrono::milliseconds(0));
    std::promise<void> done;
    std::byte byte{};
    messages->receive({.peer = 1,
                       .tag = kTag + 1,
                       .data = &byte,
                       .bytes = 1,
                       .deadline = base::deadline_in(job.timeout),
                       .done = [&](const std::exception_ptr& failure, int) {
                         if (failure)
                           done.set_exception(failure);
                         else
                           done.set_value();
                       }});
    try {
      done.get_future().get();
      received.set_value();
    } catch (...) {
      received.set_value();
      throw;
    }
  });
  EXPECT_VALUES(errors[0], "rank 11 message " + std::to_string(kBytes) + " bytes no memory");
  EXPECT_EQ(errors[1], "");
}

}  // namespace
