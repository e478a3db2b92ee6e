// Each block makes a part of one image, so that all its threads share the image's draw. Each thread
// makes 16 bytes of output at a time and reads its bytes one by one (shifted and mirrored, they
// have no alignment, but adjacent ones share cache lines). Bound by bytes. The table of values is
// in shared memory; rows of 257 put equal bytes of different channels into different banks. As in
// the CPU's loader, the table replaces arithmetic: no division, and the same bits.
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/images/prepare_images_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 2;  // per part of an image
constexpr unsigned kMaxBlocks =
    132 * 8;  // for more images, each block makes several parts and copies the table once
constexpr std::size_t kMaxTable = 48 * 1024;  // bytes; a larger table is read from global memory
constexpr int kRow = static_cast<int>(kImageTableRow);

struct Extents {
  std::int64_t images;
  int height, width, channels;
};

// The position of an element of the output, which advances to the next one, and the source of its
// byte.
class Place {
 public:
  __device__ Place(const Extents& e, const ImageDraw& draw, const std::uint8_t* image, int element)
      : e_(e), draw_(draw), image_(image) {
    const int row = e.width * e.channels;
    y_ = element / row;
    const int rest = element - y_ * row;
    x_ = rest / e.channels;
    c_ = rest - x_ * e.channels;
    find_pixel();
  }

  // The index of the table entry.
  __device__ int entry() const {
    const int byte = from_ == nullptr ? 0 : static_cast<int>(from_[c_]);
    return c_ * kRow + (hole_ ? kRow - 1 : byte);
  }

  __device__ void next() {
    if (++c_ < e_.channels) return;
    c_ = 0;
    if (++x_ == e_.width) {
      x_ = 0;
      ++y_;
    }
    find_pixel();
  }

 private:
  __device__ void find_pixel() {
    const int y = y_ + draw_.shift_y,
              x = (draw_.mirrored != 0 ? e_.width - 1 - x_ : x_) + draw_.shift_x;
    const bool inside = y >= 0 && y < e_.height && x >= 0 && x < e_.width && y_ < e_.height;
    from_ = inside ? image_ + (static_cast<std::int64_t>(y) * e_.width + x) * e_.channels : nullptr;
    hole_ = y_ >= draw_.hole_top && y_ < draw_.hole_bottom && x_ >= draw_.hole_left &&
            x_ < draw_.hole_right;
  }

  const Extents& e_;
  const ImageDraw& draw_;
  const std::uint8_t* image_;
  const std::uint8_t* from_ = nullptr;  // the pixel's bytes; null outside of the image
  int y_, x_, c_;
  bool hole_ = false;
};

// `parts` is the number of parts per image, each of kThreads * kVectorsOfThread packs of 16 bytes.
// Packs are counted from the start of `out`: a pack that two images share is written by both,
// element by element.
template <class T, bool kStaged>
__global__ void prepare(Extents e, int parts, const std::uint8_t* images, const ImageDraw* draws,
                        const float* table, T* out) {
  constexpr int kPack = Packed<T>::kCount;
  const float* values = table;
  if constexpr (kStaged) {
    float* staged = &block_shared<float>();
    for (int i = static_cast<int>(threadIdx.x); i < e.channels * kRow; i += kThreads)
      staged[i] = table[i];
    __syncthreads();
    values = staged;
  }
  const std::int64_t elements = std::int64_t{e.height} * e.width * e.channels;
  for (std::int64_t item = blockIdx.x; item < e.images * parts; item += gridDim.x) {
    const std::int64_t n = item / parts, begin = n * elements, end = begin + elements;
    const ImageDraw draw = draws[n];
    std::int64_t pack =
        begin / kPack + (item - n * parts) * (kThreads * kVectorsOfThread) + threadIdx.x;
    for (int v = 0; v < kVectorsOfThread && pack * kPack < end; ++v, pack += kThreads) {
      const std::int64_t low = pack * kPack < begin ? begin : pack * kPack;
      const std::int64_t high = (pack + 1) * kPack < end ? (pack + 1) * kPack : end;
      Place place(e, draw, images + begin, static_cast<int>(low - begin));
      if (high - low == kPack) {
        Packed<T> result;
#pragma unroll
        for (int i = 0; i < kPack; ++i, place.next())
          result.at[i] = from_wide<T>(values[place.entry()]);
        store_packed(out + low, result);
      } else {
        for (std::int64_t i = low; i < high; ++i, place.next())
          out[i] = from_wide<T>(values[place.entry()]);
      }
    }
  }
}

}  // namespace

// REQUIRES: `out` is aligned to 16 bytes, as all tensors in arenas are.
void prepare_images(KernelContext& context, const PrepareImages& o) {
  if (o.out.count() == 0) return;
  const Extents e{o.out.shape[0], static_cast<int>(o.out.shape[1]),
                  static_cast<int>(o.out.shape[2]), static_cast<int>(o.out.shape[3])};
  const bool staged = o.table.bytes() <= kMaxTable;
  with_any_storage(o.out.dtype, [&]<class T>(T) {
    constexpr int kPack = Packed<T>::kCount;
    const std::int64_t packs =
        divide_up(o.out.count() / e.images, kPack) + 1;  // plus one: an image may start within a
                                                         // pack
    const std::int64_t parts = divide_up(packs, kThreads * kVectorsOfThread);
    const std::int64_t items = parts * e.images;
    const unsigned blocks = items < kMaxBlocks ? static_cast<unsigned>(items) : kMaxBlocks;
    launch("prepare_images", staged ? prepare<T, true> : prepare<T, false>, {blocks}, kThreads,
           staged ? o.table.bytes() : 0, context.stream, e, static_cast<int>(parts),
           o.images.as<std::uint8_t>(), o.draws, o.table.as<float>(), o.out.as<T>());
  });
}

}  // namespace engine::ops::cuda
