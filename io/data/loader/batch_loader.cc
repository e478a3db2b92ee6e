// A ring of preallocated batches between helper threads and the caller.
//
// Batches are numbered by tickets from the last seek() on; ticket t lies in slot t mod slots. A
// thread takes the next ticket and its place in the sampler under the mutex, so the order is the
// same for any number of threads, and fills the slot outside it. The caller takes tickets in order
// and waits for the slot of its next one, even if later ones are ready: batches may be finished out
// of order, but are handed over in order. A slot is free again when the caller asks for the next
// batch, so helpers never run more than the number of slots ahead.
#include "io/data/loader/batch_loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/time/trace.h"
#include "io/data/loader/image_preparer.h"
#include "io/data/sources/image_source.h"

namespace io {
namespace {

void check(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options) {
  if (sampler.size != dataset.size()) {
    throw ConfigError("the sampler orders " + std::to_string(sampler.size) +
                      " samples, but data set " + dataset.name + " has " +
                      std::to_string(dataset.size()));
  }
  const std::size_t stored =
      dataset.kind == SampleKind::kImages ? dataset.samples.size() : dataset.features.size();
  const bool all_stored = dataset.kind != SampleKind::kTokens && !dataset.source;
  if (all_stored && stored != static_cast<std::size_t>(dataset.size() * dataset.sample_count())) {
    throw DataError("data set " + dataset.name + ": found " + std::to_string(stored) +
                    (dataset.kind == SampleKind::kImages ? " bytes" : " numbers") +
                    " of samples, expected " +
                    std::to_string(dataset.size() * dataset.sample_count()) + " (" +
                    std::to_string(dataset.size()) + " samples)");
  }
  if (options.workers < 0 || options.prefetch < 0) {
    throw ConfigError("a loader with " + std::to_string(options.workers) + " workers and " +
                      std::to_string(options.prefetch) + " batches ahead: expected 0 or more");
  }
  if (options.bytes && !has_bytes(dataset))
    throw ConfigError("data set " + dataset.name + " holds no images as bytes");
}

std::optional<ImagePreparer> make_preparer(const Dataset& dataset, const LoaderOptions& options) {
  if (options.augmentation.resized_crop && !dataset.source)
    throw ConfigError(
        "data set " + dataset.name +
        " is not a folder of images: --augment resized-crop needs images in full size");
  if (dataset.kind == SampleKind::kImages)
    return ImagePreparer(dataset, options.normalization, options.augmentation);
  if (!options.augmentation.any()) return std::nullopt;
  throw ConfigError("data set " + dataset.name + " has no images to augment: leave out --augment");
}

}  // namespace

bool has_bytes(const Dataset& dataset) {
  return dataset.kind == SampleKind::kImages && !dataset.source;
}

struct BatchLoader::Impl {
  struct Slot {
    std::vector<float> samples, targets;
    std::vector<std::uint8_t> pixels;  // and their draws: instead of samples
    std::vector<AugmentationDraw> draws;
    std::vector<std::uint8_t> image;  // one, on its way from the source
    std::vector<std::int32_t> tokens, labels;
    std::vector<std::int64_t> ids;
    Batch batch;
    bool ready = false;
    std::exception_ptr failure;
  };

  Impl(const Dataset& set, const SamplerOptions& sampler_options, const LoaderOptions& options);
  ~Impl();
  void start(int workers);

  bool ticket_free() const { return taken < released + slots.size(); }
  Slot& take_ticket();
  void fill(Slot& slot) const;
  void fill_image(Slot& slot, std::size_t id, float* out) const;
  void fill_bytes(Slot& slot, std::size_t id, std::size_t place) const;
  void fill_tokens(Slot& slot) const;
  std::int32_t checked(std::int32_t label, std::size_t id) const;
  void work();

  const Dataset& dataset;
  const std::optional<ImagePreparer> preparer;  // of images
  const bool resized_crop, bytes;
  const std::uint64_t seed;
  std::vector<std::thread> threads;

  std::mutex mutex;  // guards all that follows; a slot's contents belong to whoever took its ticket
                     // until `ready`
  std::condition_variable ticket_changed, slot_changed;  // wake the workers; wake the caller
  Sampler sampler;
  std::vector<Slot> slots;
  std::int64_t sampler_epoch = 0, epoch = 0,
               step = 0;          // of the sampler's order; of the next ticket
  std::int64_t taken_before = 0;  // of the samples of the next ticket's step
  std::uint64_t taken = 0, delivered = 0, released = 0;  // tickets
  int filling = 0;                                       // threads at work on a slot
  bool paused = false, stopping = false;
};

BatchLoader::Impl::Impl(const Dataset& set, const SamplerOptions& sampler_options,
                        const LoaderOptions& options)
    : dataset(set),
      preparer(make_preparer(set, options)),
      resized_crop(options.augmentation.resized_crop),
      bytes(options.bytes),
      seed(sampler_options.seed),
      sampler(sampler_options) {
  const auto most = static_cast<std::size_t>(sampler.max_local_count());
  // One slot more than batches ahead: the one in the caller's hands.
  slots.resize(options.workers == 0 ? 1 : static_cast<std::size_t>(options.prefetch) + 1);
  for (Slot& slot : slots) {
    const std::size_t elements = most * static_cast<std::size_t>(set.sample_count());
    if (set.kind == SampleKind::kTokens)
      slot.tokens.resize(elements);
    else if (bytes)
      slot.pixels.resize(elements);
    else
      slot.samples.resize(elements);
    if (bytes) slot.draws.resize(most);
    if (set.source) slot.image.resize(static_cast<std::size_t>(set.sample_count()));
    if (set.target)
      slot.targets.resize(most);
    else
      slot.labels.resize(most * static_cast<std::size_t>(set.positions()));
    slot.ids.resize(most);
  }
}

BatchLoader::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  ticket_changed.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void BatchLoader::Impl::start(int workers) {
  threads.reserve(static_cast<std::size_t>(workers));
  for (int i = 0; i < workers; ++i)
    threads.emplace_back([this, tracer = base::Tracer::of_this_thread()] {
      const base::TraceThread traced(tracer, "loader");
      work();
    });
}

// REQUIRES: the mutex, a free ticket. The slot learns its place and samples; its contents are still
// to be filled.
BatchLoader::Impl::Slot& BatchLoader::Impl::take_ticket() {
  if (epoch != sampler_epoch) sampler.set_epoch(sampler_epoch = epoch);
  Slot& slot = slots[taken++ % slots.size()];
  const std::span<const std::int64_t> ids = sampler.indices(step, std::exchange(taken_before, 0));
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
  slot.ready = false;
  slot.failure = nullptr;
  slot.batch.epoch = epoch;
  slot.batch.step = step;
  slot.batch.sample_ids = std::span(slot.ids).first(ids.size());
  const std::size_t elements = ids.size() * static_cast<std::size_t>(dataset.sample_count());
  if (dataset.target)
    slot.batch.targets = std::span(slot.targets).first(ids.size());
  else
    slot.batch.labels =
        std::span(slot.labels).first(ids.size() * static_cast<std::size_t>(dataset.positions()));
  if (dataset.kind == SampleKind::kTokens)
    slot.batch.tokens = std::span(slot.tokens).first(elements);
  else if (bytes)
    slot.batch.pixels = std::span(slot.pixels).first(elements);
  else
    slot.batch.samples = std::span(slot.samples).first(elements);
  if (bytes) slot.batch.draws = std::span(slot.draws).first(ids.size());
  if (++step == sampler.steps_per_epoch()) {
    step = 0;
    ++epoch;
  }
  return slot;
}

// Throws DataError for a label outside the data set's classes.
void BatchLoader::Impl::fill(Slot& slot) const {
  const base::TraceSpan span("prepare a batch");
  if (dataset.kind == SampleKind::kTokens) return fill_tokens(slot);
  const auto elements = static_cast<std::size_t>(dataset.sample_count());
  for (std::size_t i = 0; i < slot.batch.sample_ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(slot.ids[i]);
    if (dataset.target)
      slot.targets[i] = dataset.targets[id];
    else
      slot.labels[i] = checked(dataset.labels[id], id);
    if (bytes)
      fill_bytes(slot, id, i);
    else if (dataset.kind == SampleKind::kImages)
      fill_image(slot, id, slot.samples.data() + i * elements);
    else
      std::copy_n(dataset.features.data() + id * elements, elements,
                  slot.samples.data() + i * elements);
  }
}

void BatchLoader::Impl::fill_image(Slot& slot, std::size_t id, float* out) const {
  const auto sample = static_cast<std::int64_t>(id);
  const std::uint8_t* in = nullptr;
  if (dataset.source) {
    SplitMix crop = resized_crop_random(seed, slot.batch.epoch, sample);
    dataset.source->read(sample, resized_crop ? &crop : nullptr, slot.image);
    in = slot.image.data();
  } else {
    in = dataset.samples.data() + id * static_cast<std::size_t>(dataset.sample_count());
  }
  preparer->prepare(in, augmentation_random(seed, slot.batch.epoch, sample), out);
}

void BatchLoader::Impl::fill_bytes(Slot& slot, std::size_t id, std::size_t place) const {
  const auto elements = static_cast<std::size_t>(dataset.sample_count());
  std::copy_n(dataset.samples.data() + id * elements, elements,
              slot.pixels.data() + place * elements);
  slot.draws[place] =
      preparer->draw(augmentation_random(seed, slot.batch.epoch, static_cast<std::int64_t>(id)));
}

void BatchLoader::Impl::fill_tokens(Slot& slot) const {
  const auto context = static_cast<std::size_t>(dataset.shape[0]);
  for (std::size_t i = 0; i < slot.batch.sample_ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(slot.ids[i]);
    const std::int32_t* window =
        dataset.tokens.data() + id * static_cast<std::size_t>(dataset.stride);
    std::copy_n(window, context, slot.tokens.data() + i * context);
    for (std::size_t t = 0; t < context; ++t)
      slot.labels[i * context + t] = checked(window[t + 1], id);
  }
}

std::int32_t BatchLoader::Impl::checked(std::int32_t label, std::size_t id) const {
  // Those of unknown classes come last; a training has none.
  if (label >= 0 && label < dataset.classes + std::ssize(dataset.unknown_classes)) return label;
  throw DataError("data set " + dataset.name + ": label out of range at sample " +
                  std::to_string(id) + ": found " + std::to_string(label) + ", expected 0.." +
                  std::to_string(dataset.classes - 1));
}

void BatchLoader::Impl::work() {
  std::unique_lock lock(mutex);
  while (true) {
    ticket_changed.wait(lock, [this] { return stopping || (!paused && ticket_free()); });
    if (stopping) return;
    Slot& slot = take_ticket();
    ++filling;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(slot);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot.failure = failure;
    slot.ready = true;
    --filling;
    slot_changed.notify_one();  // only the caller waits for it
  }
}

BatchLoader::BatchLoader(const Dataset& dataset, const SamplerOptions& sampler,
                         const LoaderOptions& options) {
  check(dataset, sampler, options);
  impl_ = std::make_unique<Impl>(dataset, sampler, options);
  impl_->start(options.workers);
}

BatchLoader::~BatchLoader() = default;

void BatchLoader::seek(std::int64_t epoch, std::int64_t step, std::int64_t taken) {
  Impl& loader = *impl_;
  const std::int64_t steps = loader.sampler.steps_per_epoch();
  if (epoch < 0 || step < 0 || step > steps) {
    throw ConfigError("cannot start at epoch " + std::to_string(epoch) + ", step " +
                      std::to_string(step) + ": an epoch has " + std::to_string(steps) +
                      " steps; the data set or the batch size differs");
  }
  std::unique_lock lock(loader.mutex);
  loader.paused = true;
  loader.slot_changed.wait(lock, [&] { return loader.filling == 0; });
  loader.epoch = step == steps ? epoch + 1 : epoch;
  loader.step = step == steps ? 0 : step;
  loader.taken_before = taken;
  loader.taken = loader.delivered = loader.released = 0;
  for (Impl::Slot& slot : loader.slots) slot.ready = false;
  loader.paused = false;
  loader.ticket_changed.notify_all();
}

// The wait is for a copy in memory that one of our own threads makes: it ends by itself, so it has
// no deadline.
const Batch& BatchLoader::next() {
  Impl& loader = *impl_;
  std::unique_lock lock(loader.mutex);
  loader.released = loader.delivered;
  if (loader.threads.empty()) {
    Impl::Slot& slot = loader.take_ticket();
    loader.delivered = loader.taken;
    loader.fill(slot);
    return slot.batch;
  }
  loader.ticket_changed.notify_one();
  Impl::Slot& slot = loader.slots[loader.delivered % loader.slots.size()];
  loader.slot_changed.wait(lock, [&] { return loader.delivered < loader.taken && slot.ready; });
  ++loader.delivered;
  if (slot.failure) std::rethrow_exception(slot.failure);
  return slot.batch;
}

}  // namespace io
