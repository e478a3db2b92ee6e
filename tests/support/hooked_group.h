// A group and a communicator that forward every call to another one, for tests that observe or fail
// some.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/group.h"

namespace test_support {

// Calls `before` before each collective of another communicator.
class HookedCommunicator final : public backends::Communicator {
 public:
  explicit HookedCommunicator(std::unique_ptr<backends::Communicator> communicator)
      : communicator_(std::move(communicator)) {}
  std::function<void(const backends::Call&)> before = {};

  std::string_view name() const override { return communicator_->name(); }
  int rank() const override { return communicator_->rank(); }
  int world_size() const override { return communicator_->world_size(); }
  void run(const backends::Call& call) override {
    if (before) before(call);
    communicator_->run(call);
  }
  void abort(std::string_view reason) noexcept override { communicator_->abort(reason); }

 private:
  std::unique_ptr<backends::Communicator> communicator_;
};

class HookedGroup : public backends::Group {
 public:
  // `before` is called before each collective of this rank in host memory, on the calling thread;
  // it may be empty.
  explicit HookedGroup(std::unique_ptr<backends::Group> group, std::function<void()> before = {})
      : group_(std::move(group)), before_(std::move(before)) {}
  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  const std::vector<backends::PeerInfo>& peers() const override { return group_->peers(); }
  std::string backend() const override { return group_->backend(); }
  std::string backend_reason() const override { return group_->backend_reason(); }
  using Group::make_communicator;
  std::unique_ptr<backends::Communicator> make_communicator(
      const backends::CommunicatorRequest& request) override {
    std::unique_ptr<backends::Communicator> made = group_->make_communicator(request);
    if (!before_ || made == nullptr) return made;
    auto hooked = std::make_unique<HookedCommunicator>(std::move(made));
    hooked->before = [this](const backends::Call&) { before_(); };
    return hooked;
  }
  using Group::make_device_communicator;
  std::unique_ptr<backends::DeviceCommunicator> make_device_communicator(
      const backends::CommunicatorRequest& request) override {
    return group_->make_device_communicator(request);
  }
  std::string flight_record(const std::string& reason) const override {
    return group_->flight_record(reason);
  }
  void set_activity(std::string_view activity) noexcept override { group_->set_activity(activity); }
  void check() override { group_->check(); }
  using Group::leave;
  void leave(const std::function<bool()>& hurried) override { group_->leave(hurried); }

 private:
  const std::unique_ptr<backends::Group> group_;
  const std::function<void()> before_;
};

}  // namespace test_support
