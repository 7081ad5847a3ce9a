import os, socket
names=["WORLD_SIZE","RANK","LOCAL_RANK","MASTER_ADDR","MASTER_PORT","NCCL_DEBUG","SM_HP_EPOCHS","SM_CHANNEL_TRAIN","SMDATAPARALLEL_LOCAL_RANK","SMDATAPARALLEL_SERVER_ADDR","FI_PROVIDER", "SM_HOSTS","SM_FRAMEWORK_PARAMS","SM_CURRENT_HOST","SM_USER_ARGS"]
print("PROBE", socket.gethostname(), {n: os.environ.get(n) for n in names}, flush=True)
import smddp_tf as hvd
import numpy as np
hvd.init()
print("SUM", hvd.rank(), hvd.size(), hvd.allreduce(np.full(3, hvd.rank()+1., "float32"), op=hvd.Sum))
