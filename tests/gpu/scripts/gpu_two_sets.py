"""All ranks, and a process set of two of them, reduce in another order on each rank: neither may wait for the other.

python gpu_two_sets.py [HOST_OF_RANK], such as aba
"""

import os
import sys
import threading
import time

import gpu_ranks
from gpu_ranks import RANK, Framework, check, plan_of

import smddp_tf as hvd

gpu_ranks.SIZES = (1000,)


def main():
    if len(sys.argv) > 1:
        os.environ["SMDDP_HOST_ID"] = sys.argv[1][RANK]
    hvd.init()
    pair = hvd.add_process_set([0, 1])
    rank, inside = hvd.rank(), hvd.rank() < 2
    ids = [0, pair.process_set_id] if inside else [0]
    plans = {each: plan_of(each) for each in ids}
    # Of two models, whose backward passes use one stream.
    works = {each: Framework() for each in ids}
    for work in works.values():
        work.stream = works[0].stream
    for step in range(8):
        for each, work in works.items():
            work.compute([10 * step + each, rank])
        order = ids[::-1] if rank == 1 else ids
        threads = [threading.Thread(target=works[each].reduce, args=(plans[each], each)) for each in order]
        for thread in threads:
            thread.start()
            if step > 2:  # buckets do not wait for an agreement on their order any more
                time.sleep(0.3)  # the second backward pass ends later
        for thread in threads:
            thread.join()
        for each, work in works.items():
            check(work, 10 * step + each, range(2 if each else hvd.size()))
    print(f"rank {rank}: all sums are right", flush=True)
    hvd.shutdown()


main()
