// Sums spans of the memory of CUDA devices as codes, with the bits of CodedSum.
//
// Codes are computed on the device. They are exchanged by a communicator of the devices, or by one
// in host memory, through pinned memory: then nothing but codes is copied. Each piece of a sum has
// two parts: encode() only enqueues work; complete() exchanges and decodes, and without a
// communicator of the devices blocks the host until the other ranks have sent their codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backends/communicator.h"
#include "backends/device_communicator.h"
#include "engine/averaging/codes/coded_pieces.h"
#include "engine/averaging/codes/lossy_code.h"
#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/tensor_view.h"
#include "engine/ops/codes/quantized_codes.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

struct CodeExchange {
  backends::Communicator* in_host_memory = nullptr;
  backends::DeviceCommunicator* on_devices = nullptr;  // not null: replaces the other one

  backends::Communicator& communicator() const;
};

class DeviceCodedSum {
 public:
  // Memory of the device, of equal length and dtype: as CodedSum::Buffers.
  struct Spans {
    TensorView values, error, rest;
    TensorView velocity = {};  // of a sum with momentum: sparse codes accumulate it; else empty
  };
  // A piece and the place of its codes.
  struct Piece {
    CodedPiece cut;
    std::size_t at;  // bytes
  };
  // Selects the code, and its random numbers.
  struct Round {
    std::int64_t number = 0;
    // Not null: in device memory, replaces the number for random numbers, so that a captured step
    // can be launched for later rounds of the same code.
    const std::int64_t* at = nullptr;
  };

  // `ranges` are those whose codes are in memory at the same time; a sum has some of them or a part
  // of one. `use` as in CodedSum. The communicators must outlive the sum, and have one caller at a
  // time. Allocates all memory, on the current device.
  DeviceCodedSum(const CodeExchange& exchange, const LossyOptions& options, std::string_view use,
                 std::span<const Elements> ranges, Device device);

  // Returns the pieces of ranges in a round.
  std::vector<Piece> pieces(std::span<const Elements> ranges, std::int64_t round) const;
  // Returns the calls of a communicator for these pieces, in order.
  std::vector<backends::ControlWord> calls(std::span<const Piece> pieces) const;

  // Enqueues the code of a piece on `stream`; `number` is the piece's index among those in memory.
  void encode(std::size_t number, const Piece& piece, const Spans& spans, const Round& round,
              void* stream);
  // Replaces the values of a piece by their sum; later work on `stream` sees it. Throws PeerError,
  // and Error for a sparse code in host memory that no encoder makes (over devices, the sum is
  // NaN); values and rest are then undefined. REQUIRES: encode() before, on the same stream if the
  // devices exchange codes. The streams of the calls of all pieces are the same.
  void complete(std::size_t number, const Piece& piece, const Spans& spans, const Round& round,
                void* stream);
  // Both for each piece of a range, whose codes are the only ones in memory; then copies `rest` to
  // `error`, and returns when all is complete. If it fails, the error is unchanged. Any thread.
  void sum(const Spans& spans, Elements range, std::int64_t round);

  // Returns the sent elements of a whole block in a round of sparse codes; else 0.
  std::int64_t kept_in(std::int64_t round) const;

  const LossyOptions& options() const { return options_; }

 private:
  void exchange(bool to_each, std::size_t number, const Piece& piece, std::size_t bytes,
                void* stream);
  void send(std::size_t number, const Piece& piece, std::size_t bytes, void* stream);
  KernelContext context_on(void* stream) const;
  ops::QuantizedSpan span_of(const CodedPiece& cut, std::int64_t block, int rank,
                             const Round& round) const;
  void add_whole(const Piece& piece, const LossyCode& code, const TensorView& values,
                 void* stream) const;
  void add_shares(std::size_t number, const Piece& piece, const Spans& spans, const Round& round,
                  void* stream);

  const CodeExchange exchange_;
  const LossyOptions options_;
  const std::uint64_t stream_key_;
  const int rank_, ranks_;
  const Device device_;
  Arena own_, all_;  // codes of this rank's pieces in memory; those of all ranks for one piece
  // The same in host memory, if codes are exchanged there; otherwise null.
  std::unique_ptr<cuda::PinnedMemory> sent_, received_;
  std::vector<cuda::Event> encoded_;  // by piece: its codes are in host memory
  cuda::Event copied_;                // the codes of all ranks are on the device
  const cuda::Stream own_stream_;     // of sum()
  cuda::Event summed_;
};

// Returns the memory of the device, in bytes, for sums of these ranges.
std::size_t device_coded_bytes(const LossyOptions& options, std::span<const Elements> ranges,
                               int ranks);

}  // namespace engine
