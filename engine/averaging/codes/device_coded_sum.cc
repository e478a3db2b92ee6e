// Encodes, exchanges and decodes pieces on the device.
#include "engine/averaging/codes/device_coded_sum.h"

#include <algorithm>
#include <span>
#include <variant>

#include "backends/control_word.h"
#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/ops/codes/sparse_codes.h"

namespace engine {
namespace {

// The memory of a piece's own codes: those of all shares, or the whole code.
std::size_t bytes_of_piece(const CodedPiece& cut, int ranks) {
  return align_up(cut.share > 0 ? cut.at(ranks * cut.share) : cut.bytes);
}

std::vector<DeviceCodedSum::Piece> cut_ranges(const LossyCode& code,
                                              std::span<const Elements> ranges, int ranks) {
  std::vector<DeviceCodedSum::Piece> pieces;
  std::size_t at = 0;
  for (const Elements& range : ranges)
    std::visit(
        [&](const auto& kind) {
          for_coded_pieces(kind, range, ranks, [&](const CodedPiece& cut) {
            pieces.push_back({cut, at});
            at += bytes_of_piece(cut, ranks);
          });
        },
        code);
  return pieces;
}

// A part of a range may end in a piece of less than 4 blocks, which is sent as a whole.
std::size_t bytes_of_own(const LossyCode& code, std::span<const Elements> ranges, int ranks) {
  std::size_t bytes = std::visit(
      []<class Code>(const Code& kind) { return align_up(code_bytes(kind, 4 * Code::kBlock)); },
      code);
  for (const DeviceCodedSum::Piece& piece : cut_ranges(code, ranges, ranks))
    bytes += bytes_of_piece(piece.cut, ranks);
  return bytes;
}

std::size_t bytes_of_all(const LossyCode& code, std::span<const Elements> ranges, int ranks) {
  std::size_t bytes = 0;
  for (const Elements& range : ranges)
    bytes = std::max(
        bytes,
        std::visit([&](const auto& kind) { return coded_bytes_of_all(kind, range.count, ranks); },
                   code));
  return bytes;
}

// The first round has the largest code.
LossyCode largest_code(const LossyOptions& options) { return code_of_round(options, 0); }

TensorView part_of(const TensorView& span, std::int64_t first, std::int64_t count) {
  TensorView part = span;
  if (!span) return part;
  part.data =
      static_cast<std::byte*>(part.data) + static_cast<std::size_t>(first) * size_of(span.dtype);
  part.shape = {count};
  return part;
}

ops::SparseSpan span_of_sparse(const SparseCode& code) {
  return {.bits = code.bits(), .kept = code.kept()};
}

}  // namespace

backends::Communicator& CodeExchange::communicator() const {
  if (on_devices != nullptr) return *on_devices;
  require(in_host_memory != nullptr, "codes are exchanged by a communicator");
  return *in_host_memory;
}

DeviceCodedSum::DeviceCodedSum(const CodeExchange& exchange, const LossyOptions& options,
                               std::string_view use, std::span<const Elements> ranges,
                               Device device)
    : exchange_(exchange),
      options_(options),
      stream_key_(stream_key(options.seed, use)),
      rank_(exchange.communicator().rank()),
      ranks_(exchange.communicator().world_size()),
      device_(device),
      own_(bytes_of_own(largest_code(options), ranges, ranks_), device, "averaging"),
      all_(bytes_of_all(largest_code(options), ranges, ranks_), device, "averaging"),
      encoded_(cut_ranges(largest_code(options), ranges, ranks_).size() + 1) {
  if (exchange.on_devices != nullptr) return;
  sent_ = std::make_unique<cuda::PinnedMemory>(own_.bytes());
  received_ = std::make_unique<cuda::PinnedMemory>(all_.bytes());
}

std::vector<DeviceCodedSum::Piece> DeviceCodedSum::pieces(std::span<const Elements> ranges,
                                                          std::int64_t round) const {
  return cut_ranges(code_of_round(options_, round), ranges, ranks_);
}

std::int64_t DeviceCodedSum::kept_in(std::int64_t round) const {
  const LossyCode code = code_of_round(options_, round);
  const auto* sparse = std::get_if<SparseCode>(&code);
  return sparse != nullptr ? sparse->kept() : 0;
}

std::vector<backends::ControlWord> DeviceCodedSum::calls(std::span<const Piece> pieces) const {
  using enum backends::Operation;
  std::vector<backends::ControlWord> calls;
  const auto add = [&calls](backends::Operation operation, std::size_t bytes) {
    calls.push_back(
        backends::transfer_word(operation, static_cast<std::uint32_t>(calls.size() + 1), bytes));
  };
  for (const Piece& piece : pieces) {
    const CodedPiece& cut = piece.cut;
    if (cut.share > 0) add(kAllToAll, cut.at(cut.share));
    add(kAllGather, cut.share > 0 ? cut.at(cut.share) : cut.bytes);
  }
  return calls;
}

ops::QuantizedSpan DeviceCodedSum::span_of(const CodedPiece& cut, std::int64_t block, int rank,
                                           const Round& round) const {
  return {
      .bits = options_.bits,
      .position = cut.position(block),
      .noise = {.stream = stream_key_, .rank = rank, .round = round.number, .round_at = round.at}};
}

KernelContext DeviceCodedSum::context_on(void* stream) const {
  KernelContext context;
  context.device = device_;
  context.stream = stream;
  return context;
}

void DeviceCodedSum::encode(std::size_t number, const Piece& piece, const Spans& spans,
                            const Round& round, void* stream) {
  const CodedPiece& cut = piece.cut;
  const auto part = [&](const TensorView& span) {
    return part_of(span, cut.range.first, cut.range.count);
  };
  KernelContext context = context_on(stream);
  const LossyCode code = code_of_round(options_, round.number);
  if (const auto* sparse = std::get_if<SparseCode>(&code))
    ops::select_largest(context, span_of_sparse(*sparse),
                        {.values = part(spans.values),
                         .error = part(spans.error),
                         .rest = part(spans.rest),
                         .velocity = part(spans.velocity),
                         .decay = options_.decay,
                         .momentum = options_.momentum},
                        own_.data() + piece.at);
  else
    ops::quantize(context, span_of(cut, 0, rank_, round), options_.decay, part(spans.values),
                  part(spans.error), part(spans.rest), own_.data() + piece.at);
  send(number, piece, cut.share > 0 ? cut.at(ranks_ * cut.share) : cut.bytes, stream);
}

void DeviceCodedSum::complete(std::size_t number, const Piece& piece, const Spans& spans,
                              const Round& round, void* stream) {
  const CodedPiece& cut = piece.cut;
  if (cut.share > 0) return add_shares(number, piece, spans, round, stream);
  exchange(false, number, piece, cut.bytes, stream);
  add_whole(piece, code_of_round(options_, round.number),
            part_of(spans.values, cut.range.first, cut.range.count), stream);
}

// Decodes the whole codes of all ranks.
void DeviceCodedSum::add_whole(const Piece& piece, const LossyCode& code, const TensorView& values,
                               void* stream) const {
  const CodedPiece& cut = piece.cut;
  KernelContext context = context_on(stream);
  const ops::RankCodes codes{all_.data(), cut.bytes, ranks_};
  const auto* sparse = std::get_if<SparseCode>(&code);
  if (sparse == nullptr)
    return ops::add_quantized(context, {.bits = options_.bits, .noise = {}}, codes, values);
  const std::int64_t last = cut.blocks - 1;
  for (int rank = 0; received_ != nullptr && rank < ranks_; ++rank)
    sparse->check(received_->data() + static_cast<std::size_t>(rank) * cut.bytes + cut.at(last),
                  cut.range.count - last * cut.block);
  ops::add_selected(context, span_of_sparse(*sparse), codes, values);
}

// Sums this rank's share of quantized codes, and decodes the sums of all shares.
void DeviceCodedSum::add_shares(std::size_t number, const Piece& piece, const Spans& spans,
                                const Round& round, void* stream) {
  const CodedPiece& cut = piece.cut;
  KernelContext context = context_on(stream);
  const std::size_t bytes = cut.at(cut.share);
  exchange(true, number, piece, bytes, stream);
  const std::int64_t first = cut.first_of(rank_), end = cut.end_of(rank_),
                     begin = cut.position(first),
                     count = std::min(cut.position(end), cut.range.first + cut.range.count) - begin;
  if (count > 0)
    ops::quantize_sum(context, span_of(cut, first, kNoiseOfSums, round),
                      {all_.data(), bytes, ranks_}, part_of(spans.rest, begin, count),
                      own_.data() + piece.at);
  send(number, piece, bytes, stream);
  exchange(false, number, piece, bytes, stream);
  ops::add_quantized(context, span_of(cut, 0, rank_, round), {all_.data(), 0, 1},
                     part_of(spans.values, cut.range.first, cut.range.count));
}

// Copies the piece's own codes to host memory, if they are exchanged there.
void DeviceCodedSum::send(std::size_t number, const Piece& piece, std::size_t bytes, void* stream) {
  if (sent_ == nullptr) return;
  cuda::copy_async(sent_->data() + piece.at, own_.data() + piece.at, bytes, stream);
  encoded_[number].record(stream);
}

// In host memory, the codes of the piece before are on the device when the next ones arrive.
void DeviceCodedSum::exchange(bool to_each, std::size_t number, const Piece& piece,
                              std::size_t bytes, void* stream) {
  if (backends::DeviceCommunicator* devices = exchange_.on_devices) {
    const std::byte* own = own_.data() + piece.at;
    if (to_each)
      devices->all_to_all_on(stream, own, bytes, all_.data());
    else
      devices->all_gather_on(stream, own, bytes, all_.data());
    return;
  }
  encoded_[number].synchronize();
  copied_.synchronize();
  const std::byte* own = sent_->data() + piece.at;
  if (to_each)
    exchange_.in_host_memory->all_to_all(own, bytes, received_->data());
  else
    exchange_.in_host_memory->all_gather(own, bytes, received_->data());
  cuda::copy_async(all_.data(), received_->data(), bytes * static_cast<std::size_t>(ranks_),
                   stream);
  copied_.record(stream);
}

// Over NCCL, the ranks compare the calls of each sum, as its blocking calls would.
void DeviceCodedSum::sum(const Spans& spans, Elements range, std::int64_t round) {
  cuda::use_device(device_.index);  // of the calling thread
  void* const stream = own_stream_.handle();
  const std::vector<Piece> all = pieces({&range, 1}, round);
  if (exchange_.on_devices != nullptr) exchange_.on_devices->agree(calls(all));
  for (const Piece& each : all) {
    const Piece piece{each.cut, 0};
    encode(0, piece, spans, {.number = round}, stream);
    complete(0, piece, spans, {.number = round}, stream);
  }
  if (exchange_.on_devices != nullptr) exchange_.on_devices->wait(stream);
  const TensorView rest = part_of(spans.rest, range.first, range.count),
                   error = part_of(spans.error, range.first, range.count);
  if (rest.bytes() > 0) cuda::copy_async(error.data, rest.data, rest.bytes(), stream);
  summed_.record(stream);
  summed_.synchronize();
}

std::size_t device_coded_bytes(const LossyOptions& options, std::span<const Elements> ranges,
                               int ranks) {
  const LossyCode code = largest_code(options);
  return bytes_of_own(code, ranges, ranks) + bytes_of_all(code, ranges, ranks);
}

}  // namespace engine
