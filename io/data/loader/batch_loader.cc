// A ring of preallocated batches between worker threads and the caller.
//
// Batches are numbered by tickets since the last seek(); ticket t is in slot t mod slots. A thread
// takes the next ticket and its position in the sampler under the mutex, so the order is the same
// for any number of threads, and fills the slot without holding it. The caller takes tickets in
// order and waits for the slot of its next one, even if later ones are ready: batches may be
// completed out of order, but are delivered in order. A slot becomes free when the caller requests
// the next batch, so workers never run ahead by more than the number of slots.
#include "io/data/loader/batch_loader.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/time/trace.h"
#include "io/data/samples/absent_part.h"

namespace io {
namespace {

void check(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options) {
  if (sampler.size != dataset.size()) {
    throw ConfigError("the sampler orders " + std::to_string(sampler.size) +
                      " samples, but data set " + dataset.name + " has " +
                      std::to_string(dataset.size()));
  }
  if (options.workers < 0 || options.prefetch < 0) {
    throw ConfigError("a loader with " + std::to_string(options.workers) + " workers and " +
                      std::to_string(options.prefetch) + " batches ahead: expected 0 or more");
  }
}

Preparation preparation(const Dataset& dataset, const SamplerOptions& sampler,
                        const LoaderOptions& options) {
  return {.set = dataset.name,
          .size = dataset.size(),
          .normalization = options.normalization,
          .augmentation = options.augmentation,
          .bytes = options.bytes,
          .resident = options.resident,
          .seed = sampler.seed};
}

// The labels of text are also samples.
std::unique_ptr<BatchPart> labels_part(const Dataset& dataset, const LoaderOptions& options) {
  if (options.resident && dataset.find<NextTokens>() != nullptr)
    return std::make_unique<AbsentPart>();
  return batch_part(dataset.labels, dataset.name, dataset.samples);
}

}  // namespace

struct BatchLoader::Impl {
  struct Slot {
    BatchMemory memory;
    bool ready = false;
    std::exception_ptr failure;
  };

  Impl(const Dataset& set, const SamplerOptions& sampler_options, const LoaderOptions& options);
  ~Impl();
  void start(int workers);

  bool ticket_free() const { return taken < released + slots.size(); }
  Slot& take_ticket();
  void fill(Slot& slot) const;
  void work();

  const std::unique_ptr<BatchPart> samples, labels;
  std::vector<std::thread> threads;

  std::mutex mutex;  // guards all members below; a slot's contents belong to the thread that took
                     // its ticket until `ready`
  std::condition_variable ticket_changed, slot_changed;  // wake the workers; wake the caller
  Sampler sampler;
  std::vector<Slot> slots;
  std::int64_t sampler_epoch = 0, epoch = 0,
               step = 0;          // in the sampler's order; of the next ticket
  std::int64_t taken_before = 0;  // number of samples of the next ticket's step that were used
                                  // before
  bool divided = false;           // the last seek() passed divisions to the sampler
  std::uint64_t taken = 0, delivered = 0, released = 0;  // numbers of tickets
  int filling = 0;                                       // threads that are filling a slot
  bool paused = false, stopping = false;
};

BatchLoader::Impl::Impl(const Dataset& set, const SamplerOptions& sampler_options,
                        const LoaderOptions& options)
    : samples(batch_part(set.samples, preparation(set, sampler_options, options))),
      labels(labels_part(set, options)),
      sampler(sampler_options) {
  const auto most = static_cast<std::size_t>(sampler.max_local_count());
  // One slot more than batches ahead: the one that the caller holds.
  slots.resize(options.workers == 0 ? 1 : static_cast<std::size_t>(options.prefetch) + 1);
  for (Slot& slot : slots) {
    samples->reserve(slot.memory, most);
    labels->reserve(slot.memory, most);
    slot.memory.ids.resize(most);
    slot.memory.batch.resident = options.resident;
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

// REQUIRES: the mutex is held, and a ticket is free. Sets the slot's position and samples; its
// contents still have to be filled.
BatchLoader::Impl::Slot& BatchLoader::Impl::take_ticket() {
  if (epoch != sampler_epoch) sampler.set_epoch(sampler_epoch = epoch);
  Slot& slot = slots[taken++ % slots.size()];
  const std::span<const std::int64_t> ids = sampler.indices(step, std::exchange(taken_before, 0));
  BatchMemory& memory = slot.memory;
  std::copy(ids.begin(), ids.end(), memory.ids.begin());
  slot.ready = false;
  slot.failure = nullptr;
  memory.batch.epoch = epoch;
  memory.batch.step = step;
  memory.batch.sample_ids = std::span(memory.ids).first(ids.size());
  if (++step == sampler.steps_per_epoch()) {
    step = 0;
    ++epoch;
  }
  return slot;
}

void BatchLoader::Impl::fill(Slot& slot) const {
  const base::TraceSpan span("prepare a batch");
  labels->fill(slot.memory);
  samples->fill(slot.memory);
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

void BatchLoader::seek(std::int64_t epoch, std::int64_t step, std::int64_t taken,
                       std::span<const Division> divisions) {
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
  if (step == steps) divisions = {};
  if (loader.divided || !divisions.empty())
    loader.sampler.set_epoch(loader.sampler_epoch = loader.epoch, divisions);
  loader.divided = !divisions.empty();
  loader.taken = loader.delivered = loader.released = 0;
  for (Impl::Slot& slot : loader.slots) slot.ready = false;
  loader.paused = false;
  loader.ticket_changed.notify_all();
}

void BatchLoader::set_shares(const BatchShares& shares) {
  const std::lock_guard lock(impl_->mutex);
  impl_->sampler.set_shares(shares);
}

// This waits for a memory copy by one of our own threads, which always completes, so it needs no
// deadline.
const Batch& BatchLoader::next() {
  Impl& loader = *impl_;
  std::unique_lock lock(loader.mutex);
  loader.released = loader.delivered;
  if (loader.threads.empty()) {
    Impl::Slot& slot = loader.take_ticket();
    loader.delivered = loader.taken;
    loader.fill(slot);
    return slot.memory.batch;
  }
  loader.ticket_changed.notify_one();
  Impl::Slot& slot = loader.slots[loader.delivered % loader.slots.size()];
  loader.slot_changed.wait(lock, [&] { return loader.delivered < loader.taken && slot.ready; });
  ++loader.delivered;
  if (slot.failure) std::rethrow_exception(slot.failure);
  return slot.memory.batch;
}

}  // namespace io
