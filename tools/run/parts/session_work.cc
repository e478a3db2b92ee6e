// Chooses among the works of a step and the averagings by the options and the device.
#include "tools/run/parts/session_work.h"

#include <functional>
#include <string>

#include "engine/averaging/sums/device_sum.h"
#include "engine/core/cuda.h"
#include "engine/optim/optimizer.h"
#include "engine/train/step/batch_views.h"
#include "engine/train/step/device_work.h"
#include "io/base/files/io_error.h"
#include "tools/run/choices/averaging_choice.h"

namespace tools {

namespace {

// Returns true if each rank's own work is measured, for which the host waits for the device.
bool measures_shares(const SessionOptions& options) {
  return options.data.shares.automatic || options.data.local_steps.automatic;
}

// Returns true if ranks could skip different steps, because each rank keeps its own gradients.
bool skips_apart(const SessionSetting& setting) {
  return setting.group.world_size() > 1 && setting.compute.loss_scale.on() &&
         setting.options.averaging.method != AveragingOptions::Method::kGradients;
}

// Returns the options of a device in canonical order.
engine::DeviceShardsOptions device_shards(const SessionSetting& setting,
                                          const SessionCommunicators& communicators) {
  const bool alone = setting.group.world_size() == 1;
  return {.cut = shards_of(setting.options, setting.group),
          .gradients = alone ? nullptr : communicators.averaging.get(),
          .statistics = communicators.statistics.get(),
          .devices = communicators.device,
          .device_statistics = communicators.device_statistics};
}

using MakeDeviceSum =
    std::function<std::unique_ptr<engine::DeviceGradientSum>(const engine::FlatBuffer&)>;

// REQUIRES: encodes_gradients_on_device(averaging).
MakeDeviceSum coded_sum(const AveragingOptions& averaging, const engine::CodeExchange& exchange,
                        std::uint64_t seed) {
  using Compression = AveragingOptions::Compression;
  if (averaging.compression == Compression::kTopK)
    return [exchange, ratio = averaging.topk_ratio](const engine::FlatBuffer& gradients) {
      return engine::make_top_k_device_sum(exchange, gradients, ratio);
    };
  if (averaging.compression == Compression::kPowerSgd)
    return [exchange, rank = averaging.powersgd_rank](const engine::FlatBuffer& gradients) {
      return engine::make_power_sgd_device_sum(exchange, gradients, rank);
    };
  if (averaging.compression == Compression::kBf16)
    return [exchange, buckets = averaging.buckets](const engine::FlatBuffer& gradients) {
      return engine::make_bf16_device_sum(exchange, gradients, buckets);
    };
  return [exchange, codes = *codes_of(averaging, seed),
          buckets = averaging.buckets](const engine::FlatBuffer& gradients) {
    return engine::make_coded_device_sum(exchange, gradients, codes, buckets);
  };
}

// Lets the device sum gradients: as the other ranks' devices do, or as codes.
void choose_sum(const SessionSetting& setting, const SessionCommunicators& communicators,
                engine::DeviceWorkOptions& device) {
  const SessionOptions& options = setting.options;
  const AveragingOptions& averaging = options.averaging;
  if (averaging.canonical) {
    device.shards = device_shards(setting, communicators);
  } else if (setting.group.world_size() > 1 && encodes_gradients_on_device(averaging)) {
    device.averaging.wanted = true;  // has the memory of the error
    device.make_sum =
        coded_sum(averaging, {communicators.averaging.get(), communicators.device}, options.seed);
  } else if (communicators.device) {
    device.make_sum = [wire = communicators.device,
                       buckets = averaging.buckets](const engine::FlatBuffer& gradients) {
      return engine::make_device_sum(*wire, gradients, buckets);
    };
  }
}

engine::DeviceAveragingOptions device_averaging(const SessionSetting& setting,
                                                const SessionCommunicators& communicators) {
  const SessionOptions& options = setting.options;
  engine::DeviceAveragingOptions averaging{
      .wanted = options.averaging.of_parameters() &&
                averages(options.averaging, setting.group.world_size()),
      .communicator = communicators.device_averaging};
  const auto codes = codes_of(options.averaging, options.seed);
  if (averaging.wanted && codes)
    averaging.codes = engine::CodedParameters{*codes, communicators.averaging.get()};
  return averaging;
}

engine::DeviceWorkOptions device_options(const SessionSetting& setting, SessionModel& model,
                                         const SessionCommunicators& communicators) {
  const auto& [options, compute, group, data] = setting;
  engine::DeviceWorkOptions device{
      .device = compute.device,
      .seed = options.seed,
      .micro_batches = options.compute.micro_batches,
      .products = compute.products,
      .loss_scale = compute.loss_scale,
      .control = &model.control,
      .graph = compute.graph,
      .transfer = {.pinned = compute.pinned,
                   .non_blocking = compute.non_blocking,
                   .resident = resident_samples(model)},
      .supports_rollback = options.data.max_ranks > 0,
      .measured = data.sampling().shares_change && measures_shares(options),
      .restores_skipped = options.on_nonfinite == engine::OnNonFinite::kSkip,
      .image_table = engine::image_table(data.train(), data.normalization(), compute.device),
      .replicas = options.averaging.canonical ? nullptr : communicators.replicas.get(),
      .statistics = communicators.device_statistics,
      .make_optimizer = [&update = options.update, &model](const engine::FlatBuffer& values) {
        return make_optimizer(update, model.graph, values, model.shared_update.get());
      }};
  device.averaging = device_averaging(setting, communicators);
  if (communicators.device_averaging)
    device.gradient_memory = engine::gradient_memory(*communicators.device_averaging);
  if (communicators.device) device.gradient_memory = engine::gradient_memory(*communicators.device);
  choose_sum(setting, communicators, device);
  return device;
}

}  // namespace

std::unique_ptr<engine::StepWork> make_work(const SessionSetting& setting, SessionModel& model,
                                            const SessionCommunicators& communicators,
                                            backends::Communicator& control) {
  const auto& [options, compute, group, data] = setting;
  if (model.shared_update)
    model.shared_update->gather.connect(*communicators.averaging, model.state.parameters.values,
                                        communicators.device);
  if (compute.cuda()) {
    if (options.averaging.stale.max_behind > 0 && skips_apart(setting))
      throw io::ConfigError(
          "--stale needs --amp off, tf32 or bf16: with loss scaling all ranks agree in every step "
          "on whether to skip it");
    engine::cuda::use_device(compute.device.index);
    apply_warpgroup_switch();
    if (model.memory.resident > 0)
      model.samples = std::make_unique<engine::DeviceSamples>(data.train(), compute.device);
    engine::DeviceWorkOptions device = device_options(setting, model, communicators);
    if (skips_apart(setting)) device.agreement = &control;
    return engine::make_device_work(model.plan, model.state, *model.optimizer, device);
  }
  const engine::HostWorkParts parts{model.plan, model.state, *model.optimizer, model.pool};
  if (!options.averaging.canonical)
    return engine::make_accumulated_work(parts, {.micro_batches = options.compute.micro_batches,
                                                 .seed = options.seed,
                                                 .replicas = communicators.replicas.get()});
  const bool alone = group.world_size() == 1;
  return engine::make_sharded_work(parts,
                                   {.cut = shards_of(options, group),
                                    .micro_batches = options.compute.micro_batches,
                                    .seed = options.seed,
                                    .gradients = alone ? nullptr : communicators.averaging.get(),
                                    .statistics = communicators.statistics.get()});
}

std::unique_ptr<engine::AveragingPolicy> make_policy(const SessionSetting& setting,
                                                     SessionModel& model,
                                                     const SessionCommunicators& communicators) {
  const SessionOptions& options = setting.options;
  const backends::Group& group = setting.group;
  const engine::FlatBuffer& gradients = model.state.parameters.gradients;
  const std::string on_device = communicators.device ? ", on the device" : "";
  if (options.averaging.canonical && group.world_size() > 1)
    return engine::make_step_gradient_averaging(
        gradients,
        {.bytes = shards_of(options, group).nodes(group.rank()).size() * gradients.bytes(),
         .note = ", in canonical order" + on_device});
  if (communicators.device && !encodes_gradients_on_device(options.averaging))
    return engine::make_step_gradient_averaging(gradients,
                                                {.bytes = gradients.bytes(), .note = on_device});
  const bool scattered = model.shared_update && model.shared_update->of_buckets;
  return make_averaging(options.averaging, group,
                        {*communicators.averaging,
                         communicators.within_island.get(),
                         model.state,
                         *model.optimizer,
                         model.context,
                         options.seed,
                         {communicators.pairs, communicators.device_pairs},
                         scattered ? &model.shared_update->shares : nullptr,
                         setting.compute.cuda()});
}

}  // namespace tools
