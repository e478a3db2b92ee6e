// Makes the calls of a communicator.
#include "backends/communicator.h"

#include "backends/backend_error.h"

namespace backends {

void Communicator::barrier() { run({transfer_word(Operation::kBarrier, ++sequence_, 0)}); }

Call Communicator::reduction(Operation operation, void* data, std::size_t count, DType type,
                             ReduceOp op) {
  return {reduction_word(operation, ++sequence_, count, type, op), data};
}

Call Communicator::broadcast_call(void* data, std::size_t bytes, int root) {
  if (root < 0 || root >= world_size())
    throw MismatchError("broadcast of " + std::to_string(bytes) + " bytes from rank " +
                        std::to_string(root) + ": no such rank in a world of " +
                        std::to_string(world_size()));
  return {transfer_word(Operation::kBroadcast, ++sequence_, bytes, root), data};
}

Call Communicator::gather_call(const void* input, std::size_t bytes, void* output) {
  return {transfer_word(Operation::kAllGather, ++sequence_, bytes), output, input};
}

Call Communicator::all_to_all_call(const void* input, std::size_t bytes, void* output) {
  return {transfer_word(Operation::kAllToAll, ++sequence_, bytes), output, input};
}

}  // namespace backends
