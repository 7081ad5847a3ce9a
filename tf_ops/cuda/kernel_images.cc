#include "cuda/kernel_images.h"

namespace smddp {
namespace {

// Puts the file into the library, under a name for the table below.
#define SMDDP_IMAGE(name, file)                                                                                \
  asm(".pushsection .rodata\n.balign 64\nsmddp_image_" #name ":\n.incbin \"" file "\"\n.byte 0\n.popsection"); \
  extern "C" __attribute__((visibility("hidden"))) const char smddp_image_##name[];
#include "cuda_kernel_images.inc"
#undef SMDDP_IMAGE

// Machine code, oldest first; PTX last.
constexpr KernelImage kImages[] = {SMDDP_IMAGES};

}  // namespace

// Machine code runs on GPUs of the same major number that are not older; PTX on all that are not older.
const KernelImage* KernelImageFor(int capability) {
  const KernelImage* best = nullptr;
  for (const KernelImage& image : kImages) {
    if (image.capability > capability) continue;
    if (image.machine_code ? image.capability / 10 == capability / 10 : best == nullptr) best = &image;
  }
  return best;
}

int OldestKernelImage() { return kImages[0].capability; }

}  // namespace smddp
