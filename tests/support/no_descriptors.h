// Lets this process open no more files, as at the limit that the user has set.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace test_support {

// During its lifetime every call that makes a descriptor fails with EMFILE.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(0);  // descriptors are given from below
    close(next);
    const rlimit few{static_cast<rlim_t>(next), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace test_support
