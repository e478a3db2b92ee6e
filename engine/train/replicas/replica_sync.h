// Broadcasts rank 0's state to all ranks and verifies it.
#pragma once

#include <exception>
#include <functional>
#include <span>
#include <string>

#include "backends/communicator.h"
#include "engine/graph/model_state.h"

namespace engine {

// Checks that all ranks have the same model (names, shapes, dtype: DesyncError names the first rank
// that differs, the first tensor and both shapes), gives all of them rank 0's parameters and
// buffers by equalize(), and compares digests afterwards (DesyncError). Collective.
void broadcast_state(backends::Communicator& communicator, ModelState& state);

// Gives all ranks rank 0's memory. Ranks first compare digests, so a buffer that is equal on all of
// them is not sent: over a slow link, the model would take longer than many steps. Returns whether
// any buffer was sent. Collective.
bool equalize(backends::Communicator& communicator, std::span<FlatBuffer* const> buffers);

// Sends the root's memory to all ranks in pieces, so that no backend's limit of the frame size
// applies. Collective.
void broadcast_blocks(backends::Communicator& communicator, void* data, std::size_t bytes,
                      int root);

// Replaces the text of all ranks by rank 0's. Collective.
void broadcast_text(backends::Communicator& communicator, std::string& text);

// An error of one rank that ends the run on all ranks. That rank throws the original; the others
// throw this.
class RemoteError : public Error {
 public:
  RemoteError(int code, const std::string& what) : Error(what), exit_code(code) {}
  int exit_code;
};

// Runs `work` on rank 0 only; all ranks return together, or fail together with rank 0's error: rank
// 0 rethrows it, the others throw RemoteError with the exit code that `exit_code_of` returns for
// it. Collective.
void run_on_root(backends::Communicator& communicator, const std::function<void()>& work,
                 const std::function<int(const std::exception&)>& exit_code_of);

// Ends all ranks if one of them has failed. A rank with a `failure` rethrows it; the others throw
// RemoteError with the text of the lowest rank that has one. Returns if no rank has one.
// Collective.
void throw_on_all_ranks(backends::Communicator& communicator, const std::exception_ptr& failure,
                        const std::function<int(const std::exception&)>& exit_code_of);

}  // namespace engine
